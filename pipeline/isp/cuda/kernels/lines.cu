// SPDX-License-Identifier: Apache-2.0
// Linear samples of a line, as many as a lane makes pixels; §1 to §5. Two stand in a word, the left one in its low half.

#define LANE 8
#define WORDS (LANE / 2)

// A warp makes strips of STRIP pixels. Its first and its last lane make none: they only load samples for their neighbours.
#define STRIP ((THREADS_X - 2) * LANE)

struct Words { u32 v[WORDS]; };

INLINE u32 both(u32 first, u32 second) { return first | second << 16; }
INLINE u32 half(u32 word, int i) { return i ? word >> 16 : word & 0xffff; }

// What is loaded is not looked at before it is needed (complete), so that loads of several lines are on their way at a time.
// Kernels only read it: its path is that of read-only data.
template <typename T>
INLINE T load(const void *at) { return __ldg((const T *)at); }

// From a line of words that is aligned to 16 bytes.
INLINE Words wordsOf(const u16 *line, int x)
{
	const uint4 w = load<uint4>(line + x);
	return Words{{w.x, w.y, w.z, w.w}};
}

// From a line of bytes that is aligned to 16: four bytes to a word.
INLINE Words bytesOf(const u8 *line, int x)
{
	const uint2 w = load<uint2>(line + x);
	return Words{{w.x, w.y, 0, 0}};
}

#if PACKED
// From a line of packed samples that is aligned to 4: the words that have the bytes of a lane's samples.
INLINE Words packedOf(const u8 *line, int x)
{
	const u8 *at = line + (x * BITS / 8 & ~3);
	return Words{{load<u32>(at), load<u32>(at + 4), load<u32>(at + 8), 0}};
}

// The samples of packedOf's words: of two in three bytes, or of four in five, the last byte has the low bits.
INLINE Words unpacked(const Words &w, int x)
{
	Words p;
#if BITS == 12
	p.v[0] = w.v[0];
	p.v[1] = __byte_perm(w.v[0], w.v[1], 0x0543);
	p.v[2] = __byte_perm(w.v[1], w.v[2], 0x0432);
	p.v[3] = w.v[2] >> 8;
#pragma unroll
	for (int i = 0; i < WORDS; i++) {
		const u32 low = p.v[i] >> 16 & 255;
		p.v[i] = __byte_perm(p.v[i], 0, 0x4140) << 4 | ((low | low << 12) & 0x000f000f);
	}
#else
	const int shift = x & LANE ? 16 : 0; // where the first byte stands in the first word
	const u32 v[3] = {__funnelshift_r(w.v[0], w.v[1], shift), __funnelshift_r(w.v[1], w.v[2], shift), w.v[2] >> shift};
	const u32 high[2] = {v[0], __byte_perm(v[1], v[2], 0x4321)};
	const u32 low[2] = {v[1] & 255, v[2] >> 8 & 255};
#pragma unroll
	for (int i = 0; i < 2; i++) {
		p.v[2 * i] = __byte_perm(high[i], 0, 0x4140) << 2 | ((low[i] | low[i] << 14) & 0x00030003);
		p.v[2 * i + 1] = __byte_perm(high[i], 0, 0x4342) << 2 | ((low[i] >> 4 | low[i] << 10) & 0x00030003);
	}
#endif
	return p;
}
#endif

// The samples of what fetch has brought.
template <bool FAST>
INLINE Words complete(const Words &fetched, int x, int width)
{
	if (!FAST)
		return fetched;
#if PACKED && !defined PLANE
	return unpacked(fetched, min(max(x, 0), width - LANE));
#elif BITS == 8 && !defined PLANE
	Words p;
#pragma unroll
	for (int i = 0; i < WORDS; i++)
		p.v[i] = __byte_perm(fetched.v[i / 2], 0, i & 1 ? 0x4342 : 0x4140);
	return p;
#else
	return fetched;
#endif
}

// FAST is for frames with lines that are aligned to 16 bytes, or to 4 if they are packed, a multiple of LANE pixels wide, and of
// eight lines at least (canBeFast in args.go), and for pictures that can be written by words (canBeWritten): no branch is needed. Lanes
// beyond the ends of a line look at its ends.

// The line that line y is, which is beyond the frame by less than its height.
INLINE int mirrored(int y, int height)
{
	y = y < 0 ? -y : y;
	return y < height ? y : 2 * (height - 1) - y;
}

// A lane's samples of a line: as they come, or as they were kept behind §3. Nobody looks at what is not there yet (a.there), and
// it is not touched: it would be read while it is written.
template <bool FAST>
INLINE Words fetch(const Args &a, int x, int y)
{
	if (FAST) {
		y = min(mirrored(y, a.height), a.there - 1);
		x = min(max(x, 0), a.width - LANE);
#ifdef PLANE
		return wordsOf(a.samples + (size_t)y * a.pitch, x);
#elif PACKED
		return packedOf(a.in + (size_t)y * a.stride, x);
#elif BITS == 8
		return bytesOf(a.in + (size_t)y * a.stride, x);
#else
		return wordsOf((const u16 *)(a.in + (size_t)y * a.stride), x);
#endif
	}
	Words p;
	y = min(reflect(y, a.height), a.there - 1);
#pragma unroll
	for (int i = 0; i < WORDS; i++) {
		const int first = reflect(x + 2 * i, a.width), second = reflect(x + 1 + 2 * i, a.width);
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
	if (FAST)
		return wordsOf(line, min(max(x, 0), a.width - LANE));
	Words p;
#pragma unroll
	for (int i = 0; i < WORDS; i++)
		p.v[i] = both(line[reflect(x + 2 * i, a.width)], line[reflect(x + 1 + 2 * i, a.width)]);
	return p;
}
#endif

// Linear samples of line y, whose parity is that of i; §2, §4, §5.
template <bool FAST>
INLINE Words linearise(const Args &a, const Words &fetched, int x, int y, int i)
{
	Words p = complete<FAST>(fetched, x, a.width);
#ifdef SHADING
	const GainLines g = gainLines(a, FAST ? mirrored(y, a.height) : reflect(y, a.height));
	const Words upper = gainsOf<FAST>(a, g.upper, x), lower = gainsOf<FAST>(a, g.lower, x);
#endif
#pragma unroll
	for (int j = 0; j < WORDS; j++) {
#if !defined PLANE && BITS != 16 && BITS != 8 && !PACKED
		p.v[j] &= both((1 << BITS) - 1, (1 << BITS) - 1);
#endif
		u32 v[2];
#pragma unroll
		for (int k = 0; k < 2; k++) {
			v[k] = half(p.v[j], k);
#ifdef SHADING
#ifndef PLANE
			v[k] = dark(a, v[k], site(k, i));
#endif
			v[k] = shaded(v[k], half(upper.v[j], k), half(lower.v[j], k), g.h);
#elif !defined PLANE
			v[k] = darkLow(a, v[k], site(k, i)); // a.m shifts it
#endif
			v[k] = balanced(a, v[k], site(k, i));
		}
		p.v[j] = both(v[0], v[1]);
	}
	return p;
}

#define ALL_LANES 0xffffffff

// A line that a lane looks at: its own words, and one on each side.
struct Line { u32 v[1 + WORDS + 1]; };

// Adds the words of the lanes beside, or, in FAST, what is reflected at the ends of the line: elsewhere, lanes beyond have it.
template <bool FAST>
INLINE void widen(Line &l, const Words &own, int x, int width)
{
	l.v[0] = __shfl_up_sync(ALL_LANES, own.v[WORDS - 1], 1);
	l.v[1 + WORDS] = __shfl_down_sync(ALL_LANES, own.v[0], 1);
#pragma unroll
	for (int j = 0; j < WORDS; j++)
		l.v[1 + j] = own.v[j];
	if (FAST && x == 0)
		l.v[0] = __byte_perm(own.v[1], own.v[0], 0x7610); // samples 2 and 1
	if (FAST && x + LANE == width)
		l.v[1 + WORDS] = __byte_perm(own.v[WORDS - 1], own.v[WORDS - 2], 0x7610);
}
