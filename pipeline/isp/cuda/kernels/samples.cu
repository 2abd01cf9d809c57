// SPDX-License-Identifier: Apache-2.0
// Samples one by one; §1, §2, §4, §5.

INLINE int reflect(int i, int n)
{
	while ((u32)i >= (u32)n)
		i = i < 0 ? -i : 2 * (n - 1) - i;
	return i;
}

INLINE int site(int x, int y) { return (y & 1) << 1 | (x & 1); }

// An element by site. An index that is not known when it is compiled would bring all Args into local memory.
INLINE int bySite(const int (&v)[4], int at)
{
	const int first = at & 1 ? v[1] : v[0], second = at & 1 ? v[3] : v[2];
	return at & 2 ? second : first;
}

// One sample as it comes, inside the frame.
INLINE u32 raw(const Args &a, int x, int y)
{
	const u8 *p = a.in + (size_t)y * a.stride;
#if PACKED && BITS == 10
	p += x / 4 * 5;
	return p[x & 3] << 2 | (p[4] >> 2 * (x & 3) & 3);
#elif PACKED
	p += x / 2 * 3;
	return p[x & 1] << 4 | (p[2] >> 4 * (x & 1) & 15);
#elif BITS == 8
	return p[x];
#else
	return (p[2 * x] | p[2 * x + 1] << 8) & a.mask;
#endif
}

// §2, before the shift.
INLINE u32 darkLow(const Args &a, u32 s, int at) { return max((int)s - bySite(a.black, at), 0); }

// §2
INLINE u32 dark(const Args &a, u32 s, int at) { return darkLow(a, s, at) << (16 - BITS); }

INLINE u32 kept(const u16 *samples, const Args &a, int x, int y) { return samples[(size_t)y * a.pitch + x]; }

// A sample behind §3.
INLINE u32 settled(const Args &a, int x, int y)
{
#ifdef PLANE
	return kept(a.samples, a, x, y);
#else
	return dark(a, raw(a, x, y), site(x, y));
#endif
}

// §4
INLINE u32 shaded(u32 v, u32 upper, u32 lower, u32 h)
{
	u32 g = (upper * (256 - h) + lower * h + 128) >> 8;
	return min((v * g + 2048) >> 12, 65535u);
}

// The two lines of gains for line y of the frame, and the weight of the second.
struct GainLines {
	const u16 *upper, *lower;
	u32 h;
};

INLINE GainLines gainLines(const Args &a, int y)
{
	int j = a.rows[y] >> 8;
	const u16 *lines = a.shading + (size_t)(y & 1) * a.shadingRows * a.pitch;
	GainLines g;
	g.upper = lines + (size_t)j * a.pitch;
	g.lower = lines + (size_t)min(j + 1, a.shadingRows - 1) * a.pitch;
	g.h = a.rows[y] & 255;
	return g;
}

// A sample behind §4, anywhere.
INLINE u32 even(const Args &a, int x, int y)
{
	x = reflect(x, a.width);
	y = reflect(y, a.height);
	u32 v = settled(a, x, y);
#ifdef SHADING
	GainLines g = gainLines(a, y);
	v = shaded(v, g.upper[x], g.lower[x], g.h);
#endif
	return v;
}

// §5
INLINE u32 balanced(const Args &a, u32 v, int at)
{
	const u32 n = bySite(a.n, at);
	return min((v * bySite(a.m, at) + (1u << (n - 1))) >> n, (u32)LINEAR_MAX);
}
