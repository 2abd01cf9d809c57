// SPDX-License-Identifier: Apache-2.0
// Linear samples, as many as a lane needs of a line; §1 to §5. It makes LANE pixels.

#define LANE 8
#define LEAD 4             // samples of a line in front of its own that a lane looks at
#define ACROSS (LEAD + LANE + 2)

// ACROSS samples from x - LEAD on, two to a word.
struct Words { u32 v[ACROSS / 2]; };

INLINE u32 both(u32 first, u32 second) { return first | second << 16; }

// What is loaded is not looked at before it is needed (complete), so that loads of several lines are on their way at a time.
// Kernels only read it: its path is that of read-only data.
template <typename T>
INLINE T load(const void *at) { return __ldg((const T *)at); }

// Fills in what lies beyond the ends of a line, if the lane stands there.
INLINE void mirrorEnds(Words &p, int x, int width)
{
	if (x == 0) {
		p.v[0] = (p.v[4] & 0xffff) | (p.v[3] & 0xffff0000);
		p.v[1] = (p.v[3] & 0xffff) | (p.v[2] & 0xffff0000);
	}
	if (x + LANE == width)
		p.v[6] = (p.v[5] & 0xffff) | (p.v[4] & 0xffff0000);
}

// From a line of words that is aligned to 16 bytes.
INLINE Words wordsOf(const u16 *line, int x, int width)
{
	Words p;
	const u16 *at = line + x;
	const uint4 w = load<uint4>(at);
	uint2 before = {0, 0};
	if (x > 0)
		before = load<uint2>(at - LEAD);
	p.v[0] = before.x;
	p.v[1] = before.y;
	p.v[2] = w.x;
	p.v[3] = w.y;
	p.v[4] = w.z;
	p.v[5] = w.w;
	p.v[6] = x + LANE < width ? load<u32>(at + LANE) : 0;
	return p;
}

// From a line of bytes that is aligned to 16: four bytes to a word, LEAD in front of the lane's own, and two behind.
INLINE Words bytesOf(const u8 *line, int x, int width)
{
	Words p = {};
	const u8 *at = line + x;
	const uint2 w = load<uint2>(at);
	p.v[0] = x > 0 ? load<u32>(at - LEAD) : 0;
	p.v[1] = w.x;
	p.v[2] = w.y;
	p.v[3] = x + LANE < width ? load<u16>(at + LANE) : 0;
	return p;
}

#if PACKED
INLINE u32 byteOf(const u32 (&words)[6], int i) { return words[i / 4] >> 8 * (i % 4) & 255; }

// From a line of packed samples that is aligned to 4: the words that have the bytes of a lane's samples.
INLINE Words packedOf(const u8 *line, int x, int width)
{
	Words p = {};
	const int first = (x * BITS / 8 - LEAD * BITS / 8) >> 2, last = (width * BITS / 8 - 1) >> 2;
#pragma unroll
	for (int i = 0; i < 6; i++)
		p.v[i] = load<u32>(line + 4 * min(max(first + i, 0), last));
	return p;
}

// The samples of packedOf's words: of two in three bytes, or of four in five, the last byte has the low bits.
INLINE Words unpacked(const Words &w, int x)
{
	const int shift = BITS == 12 ? 16 : x & LANE ? 8 : 24; // where the first byte stands in the first word
	u32 v[6];
#pragma unroll
	for (int i = 0; i < 6; i++)
		v[i] = __funnelshift_r(w.v[i], w.v[i + 1], shift);
	Words p;
#pragma unroll
	for (int i = 0; i < ACROSS / 2; i++) {
		const int first = BITS == 12 ? 3 * i : i / 2 * 5 + 2 * (i & 1), last = BITS == 12 ? first + 2 : i / 2 * 5 + 4;
		const int more = BITS - 8, at = BITS == 12 ? 0 : 4 * (i & 1);
		const u32 low = byteOf(v, last) >> at, mask = (1 << more) - 1;
		p.v[i] = both(byteOf(v, first) << more | (low & mask), byteOf(v, first + 1) << more | (low >> more & mask));
	}
	return p;
}
#endif

// The samples of what fetch has brought.
template <bool FAST>
INLINE Words complete(const Words &fetched, int x, int width)
{
	if (!FAST)
		return fetched;
	Words p = fetched;
#if PACKED && !defined PLANE
	p = unpacked(fetched, min(x, width - LANE));
#elif BITS == 8 && !defined PLANE
#pragma unroll
	for (int i = 0; i < ACROSS / 2; i++) {
		const u32 two = fetched.v[i / 2] >> 16 * (i & 1);
		p.v[i] = both(two & 255, two >> 8 & 255);
	}
#endif
	mirrorEnds(p, min(x, width - LANE), width);
	return p;
}

// FAST is for frames whose lines are aligned to 16 bytes, or to 4 if they are packed, a multiple of LANE pixels wide, and of
// eight lines at least: they need no branch. Lanes behind the end of a line look at its end.
INLINE bool canBeFast(const Args &a)
{
#ifdef PLANE
	const bool wide = true;
#else
	const bool wide = a.wide >= (PACKED ? 4 : 16);
#endif
	return wide && a.width % LANE == 0 && a.height >= 8;
}

// The line that line y is, which is beyond the frame by less than its height.
INLINE int mirrored(int y, int height)
{
	y = y < 0 ? -y : y;
	return y < height ? y : 2 * (height - 1) - y;
}

// What a lane needs of a line: as it comes, or as it was kept behind §3. Nobody looks at what is not there yet (a.there), and it
// is not touched: it would be read while it is written.
template <bool FAST>
INLINE Words fetch(const Args &a, int x, int y)
{
	Words p;
	if (FAST) {
		y = min(mirrored(y, a.height), a.there - 1);
		x = min(x, a.width - LANE);
#ifdef PLANE
		return wordsOf(a.samples + (size_t)y * a.pitch, x, a.width);
#elif PACKED
		return packedOf(a.in + (size_t)y * a.stride, x, a.width);
#elif BITS == 8
		return bytesOf(a.in + (size_t)y * a.stride, x, a.width);
#else
		return wordsOf((const u16 *)(a.in + (size_t)y * a.stride), x, a.width);
#endif
	}
	y = min(reflect(y, a.height), a.there - 1);
#pragma unroll
	for (int i = 0; i < ACROSS / 2; i++) {
		const int first = reflect(x - LEAD + 2 * i, a.width), second = reflect(x - LEAD + 1 + 2 * i, a.width);
#ifdef PLANE
		p.v[i] = both(kept(a.samples, a, first, y), kept(a.samples, a, second, y));
#else
		p.v[i] = both(raw(a, first, y), raw(a, second, y));
#endif
	}
	return p;
}

#ifdef SHADING
template <bool FAST>
INLINE Words gainsOf(const Args &a, const u16 *line, int x)
{
	if (FAST) {
		x = min(x, a.width - LANE);
		Words p = wordsOf(line, x, a.width);
		mirrorEnds(p, x, a.width);
		return p;
	}
	Words p;
#pragma unroll
	for (int i = 0; i < ACROSS / 2; i++)
		p.v[i] = both(line[reflect(x - LEAD + 2 * i, a.width)], line[reflect(x - LEAD + 1 + 2 * i, a.width)]);
	return p;
}
#endif

// Linear samples of line y, whose parity is that of i; §2, §4, §5.
template <bool FAST>
INLINE void linearise(const Args &a, int (&s)[ACROSS], const Words &fetched, int x, int y, int i)
{
	const Words p = complete<FAST>(fetched, x, a.width);
#ifdef SHADING
	const GainLines g = gainLines(a, FAST ? mirrored(y, a.height) : reflect(y, a.height));
	const Words upper = gainsOf<FAST>(a, g.upper, x), lower = gainsOf<FAST>(a, g.lower, x);
#endif
#pragma unroll
	for (int j = 0; j < ACROSS; j++) {
		const int at = site(j, i);
		u32 v = j & 1 ? p.v[j / 2] >> 16 : p.v[j / 2] & 0xffff;
#ifndef PLANE
#if BITS != 16 && BITS != 8
		v &= a.mask;
#endif
		v = dark(a, v, at);
#endif
#ifdef SHADING
		const u32 u = j & 1 ? upper.v[j / 2] >> 16 : upper.v[j / 2] & 0xffff;
		const u32 l = j & 1 ? lower.v[j / 2] >> 16 : lower.v[j / 2] & 0xffff;
		v = shaded(v, u, l, g.h);
#endif
		s[j] = balanced(a, v, at);
	}
}
