// From the sensor's bytes to linear samples; §1, §2, §4, §5.

// Four samples of a line.
struct Four { u32 v[4]; };

INLINE int reflect(int i, int n)
{
	while ((u32)i >= (u32)n)
		i = i < 0 ? -i : 2 * (n - 1) - i;
	return i;
}

INLINE int site(int x, int y) { return (y & 1) << 1 | (x & 1); }

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

// Four of them, from a multiple of four on.
INLINE Four rawFour(const Args &a, int x, int y)
{
	Four f;
#if !PACKED
	if (a.wide >= (BITS == 8 ? 4 : 16)) {
		const u8 *p = a.in + (size_t)y * a.stride;
#if BITS == 8
		u32 w = *(const u32 *)(p + x);
#pragma unroll
		for (int i = 0; i < 4; i++)
			f.v[i] = w >> 8 * i & 255;
#else
		uint2 w = *(const uint2 *)(p + 2 * x);
		f.v[0] = w.x & a.mask;
		f.v[1] = w.x >> 16 & a.mask;
		f.v[2] = w.y & a.mask;
		f.v[3] = w.y >> 16 & a.mask;
#endif
		return f;
	}
#endif
#pragma unroll
	for (int i = 0; i < 4; i++)
		f.v[i] = raw(a, x + i, y);
	return f;
}

// §2
INLINE u32 dark(const Args &a, u32 s, int at)
{
	int k = a.black[at];
	return (u32)(max((int)s, k) - k) << a.shift;
}

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

INLINE Four settledFour(const Args &a, int x, int y)
{
#ifdef PLANE
	uint2 w = *(const uint2 *)(a.samples + (size_t)y * a.pitch + x);
	Four f;
	f.v[0] = w.x & 0xffff;
	f.v[1] = w.x >> 16;
	f.v[2] = w.y & 0xffff;
	f.v[3] = w.y >> 16;
	return f;
#else
	Four f = rawFour(a, x, y);
#pragma unroll
	for (int i = 0; i < 4; i++)
		f.v[i] = dark(a, f.v[i], site(i, y));
	return f;
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
	return min((v * a.m[at] + (1u << (a.n[at] - 1))) >> a.n[at], (u32)LINEAR_MAX);
}

// Four linear samples, anywhere from a multiple of four on.
INLINE Four linearFour(const Args &a, int x, int y)
{
	Four f;
	y = reflect(y, a.height);
	if (x >= 0 && x + 3 < a.width) {
		f = settledFour(a, x, y);
#ifdef SHADING
		GainLines g = gainLines(a, y);
		uint2 u = *(const uint2 *)(g.upper + x), l = *(const uint2 *)(g.lower + x);
		f.v[0] = shaded(f.v[0], u.x & 0xffff, l.x & 0xffff, g.h);
		f.v[1] = shaded(f.v[1], u.x >> 16, l.x >> 16, g.h);
		f.v[2] = shaded(f.v[2], u.y & 0xffff, l.y & 0xffff, g.h);
		f.v[3] = shaded(f.v[3], u.y >> 16, l.y >> 16, g.h);
#endif
	} else {
		for (int i = 0; i < 4; i++)
			f.v[i] = even(a, x + i, y);
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		f.v[i] = balanced(a, f.v[i], site(i, y));
	return f;
}
