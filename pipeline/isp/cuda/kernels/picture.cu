// SPDX-License-Identifier: Apache-2.0
// The kernels that make pictures, from the sensor's bytes to the output's; §10, §12. A warp makes a strip of STRIP pixels
// from the top down, two lines at a time; its lanes keep the samples around their pixels in registers.

// Blocks on a multiprocessor (measured on an H200): with more, registers spill.
#if defined MALVAR || defined SHADING
#define MIN_BLOCKS 2
#else
#define MIN_BLOCKS 3
#endif

#if defined TURN && TURN >= 4
#define TRANSPOSED true
#else
#define TRANSPOSED false
#endif

// Entries of the tone table: of RGB24 they are the bytes of the output, unless colours are kept before.
template <int FORMAT, bool KEPT> struct Tone { typedef u16 Code; enum { SIZE = KEPT ? 16 : 2 * 16384 }; };
template <> struct Tone<RGB24, false> { typedef u8 Code; enum { SIZE = 16384 }; };

// A block's threads load the table together.
template <int FORMAT, bool KEPT>
INLINE void shareTone(const Args &a, void *to)
{
	for (int i = threadIdx.y * THREADS_X + threadIdx.x; i < Tone<FORMAT, KEPT>::SIZE / 16; i += THREADS)
		((uint4 *)to)[i] = ((const uint4 *)a.tone)[i];
	__syncthreads();
}

// A pixel's colours and luma, as they are in memory.
INLINE uint2 kept(const Color &p)
{
	uint2 v;
	v.x = p.r | p.g << 16;
	v.y = p.b | (p.r + 2 * p.g + p.b + 2) >> 2 << 16;
	return v;
}

// Colours of two lines of a strip that are not in memory yet, and the strip's lines.
struct Held {
	uint2 v[2][LANE];
	int begin, end;
};

#ifdef TURN
// The pixel of the turned picture that pixel (x, y) is; §9a.
INLINE size_t turned(const Args &a, int x, int y)
{
	x = TURN & 1 ? a.outWidth - 1 - x : x;
	y = TURN & 2 ? a.outHeight - 1 - y : y;
	return TURN & 4 ? (size_t)x * a.outHeight + y : (size_t)y * a.outWidth + x;
}

INLINE uint4 pairOf(const uint2 &a, const uint2 &b)
{
	uint4 both;
	both.x = a.x;
	both.y = a.y;
	both.z = b.x;
	both.w = b.y;
	return both;
}

// Of exchanged lines and columns, four lines are written together, which are 32 bytes of a column: memory is slow with
// fewer. The first two wait in held.
INLINE void keepColumns(const Args &a, const Patch &q, Held &held, int x, int y)
{
	const bool waits = ((y - held.begin) & 2) == 0;
	if (waits && y + 2 < held.end) {
#pragma unroll
		for (int c = 0; c < LANE; c++) {
			held.v[0][c] = kept(q.p[0][c]);
			held.v[1][c] = kept(q.p[1][c]);
		}
		return;
	}
#pragma unroll
	for (int c = 0; c < LANE; c++) {
		if (x + c >= a.outWidth)
			continue;
		const uint2 v = kept(q.p[0][c]), w = kept(q.p[1][c]);
		uint4 *to = (uint4 *)(a.colors + 4 * turned(a, x + c, TURN & 2 ? y + 1 : y));
		*to = TURN & 2 ? pairOf(w, v) : pairOf(v, w);
		if (!waits)
			to[TURN & 2 ? 1 : -1] = TURN & 2 ? pairOf(held.v[1][c], held.v[0][c]) : pairOf(held.v[0][c], held.v[1][c]);
	}
}

INLINE void keepColors(const Args &a, const Patch &q, Held &held, int x, int y)
{
	if (TURN & 4 && a.outHeight % 2 == 0) {
		keepColumns(a, q, held, x, y);
		return;
	}
#pragma unroll
	for (int c = 0; c < LANE; c++)
#pragma unroll
		for (int r = 0; r < 2; r++)
			if (x + c < a.outWidth && y + r < a.outHeight)
				*(uint2 *)(a.colors + 4 * turned(a, x + c, y + r)) = kept(q.p[r][c]);
}
#else
INLINE void keepColors(const Args &a, const Patch &q, Held &, int x, int y)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		if (y + r >= a.outHeight)
			continue;
		u16 *to = a.colors + 4 * ((size_t)(y + r) * a.outWidth + x);
		if (a.outWidth % LANE == 0) { // two pixels at a time
#pragma unroll
			for (int c = 0; c < LANE; c += 2) {
				const uint2 v = kept(q.p[r][c]), w = kept(q.p[r][c + 1]);
				uint4 both;
				both.x = v.x;
				both.y = v.y;
				both.z = w.x;
				both.w = w.y;
				*(uint4 *)(to + 4 * c) = both;
			}
			continue;
		}
#pragma unroll
		for (int c = 0; c < LANE; c++)
			if (x + c < a.outWidth)
				*(uint2 *)(to + 4 * c) = kept(q.p[r][c]);
	}
}
#endif

// The pixel to the left of a lane's own, for 4:2:2. That of pixel 0 is pixel 1.
INLINE Color leftOf(const Color (&p)[LANE], int x)
{
	const Color &last = p[LANE - 1];
	const u32 rg = __shfl_up_sync(ALL_LANES, both(last.r, last.g), 1);
	Color k;
	k.b = MONO ? half(rg, 0) : __shfl_up_sync(ALL_LANES, last.b, 1);
	k.r = half(rg, 0);
	k.g = half(rg, 1);
	return x == 0 ? p[1] : k;
}

// Where a lane writes, in FAST.
struct Writes {
	bool direct, works;
	Places places;
	WordPlaces words;
};

// Line r of a patch, as bytes: written, or staged.
template <int FORMAT, bool KEPT, bool FAST>
INLINE void finishLine(const Args &a, const Color (&p)[LANE], Staged<FORMAT> &staged, Writes &to, int x, int y, int r)
{
	const bool exists = y + r < a.outHeight;
	if (FORMAT == UYVY && FAST) {
		const uint4 w = pixels422(a, p, leftOf(p, x));
		if (to.direct) {
			if (to.works && exists)
				*(uint4 *)(a.out + to.places.line) = w;
			to.places.line += to.places.length;
			return;
		}
		if (to.works)
			*(uint4 *)(staged.line[r] + 2 * LANE * (threadIdx.x - 1)) = w;
		__syncwarp();
		if (exists)
			writeWords(a, to.words, staged.line[r]);
	} else if (Direct<FORMAT>::YES && FAST) {
		if (to.works && exists)
			*(uint2 *)(a.out + to.places.line) = lumas(a, p);
		to.places.line += to.places.length;
	} else {
		const Color left = FORMAT == UYVY || FORMAT == UYVP ? leftOf(p, x) : p[0];
		if (to.works)
			stageLine<FORMAT, KEPT>(a, staged.line[r], p, left);
	}
}

// Writes the chroma that two lines share, or what was staged of them.
template <int FORMAT, bool FAST>
INLINE void finishPatch(const Args &a, const Patch &q, Staged<FORMAT> &staged, Writes &to, int strip, int y)
{
	const bool chroma = FORMAT == I420 || FORMAT == NV12;
	if (Direct<FORMAT>::YES && FAST) {
		if (chroma && to.works)
			writeChroma<FORMAT>(a, to.places, q);
		return;
	}
	if (chroma && to.works)
		stageChroma<FORMAT>(a, staged.chroma, q);
	__syncwarp();
	writeStaged<FORMAT>(a, staged, strip, y);
	__syncwarp();
}

template <int FORMAT, bool KEPT>
INLINE void toneLine(const Args &a, Color (&p)[LANE], const void *tone)
{
#pragma unroll
	for (int c = 0; c < LANE; c++)
		p[c] = toned(a, p[c], (const typename Tone<FORMAT, KEPT>::Code *)tone);
}

// A lane's patch.
template <int SIZE, int FORMAT, bool KEPT, bool FAST>
INLINE void makePatch(const Args &a, const Window &w, const void *tone, Staged<FORMAT> &staged, Held &held, Writes &to, int strip, int x, int y)
{
	Patch q;
	if (KEPT)
		sharpPatch(a, q, x, y);
	if (!KEPT && SIZE > 0)
		blockPatch<SIZE, FAST>(a, q, x, y);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		if (!KEPT && SIZE == 0)
			fullLine(w, q, r);
		if (!KEPT)
			toneLine<FORMAT, KEPT>(a, q.p[r], tone);
		if (FORMAT != COLOR)
			finishLine<FORMAT, KEPT, FAST>(a, q.p[r], staged, to, x, y, r);
	}
	if (FORMAT != COLOR)
		finishPatch<FORMAT, FAST>(a, q, staged, to, strip, y);
	else if (to.works)
		keepColors(a, q, held, x, y);
}

// The line of a Half that two lines of samples make.
template <int FORMAT>
INLINE void makeHalf(const Args &a, const Window &w, const void *tone, HalfPlaces &to, bool works, int y)
{
	Color p[LANE / 2];
#pragma unroll
	for (int j = 0; j < LANE / 2; j++) {
		const u32 v[2] = {w.s[2].v[1 + j], w.s[3].v[1 + j]};
		p[j] = toned(a, quad(v, 0), (const typename Tone<FORMAT, false>::Code *)tone);
	}
	if (works)
		writeHalf(a, to, p, y & 2);
}

// The lines of a strip. Those of samples that come next are on their way while two of pixels are made.
template <int SIZE, int FORMAT, bool KEPT, bool FAST, bool HALVED>
INLINE void makeStrip(const Args &a, void *tone, Staged<FORMAT> &staged, int strip, int y0, int y1)
{
	const int lane = threadIdx.x - 1, x = strip * STRIP + LANE * lane;
	const bool looks = SIZE == 0 && !KEPT;
	Window w;
	Held held;
	held.begin = y0;
	held.end = y1;
	Words next[2];
	Writes to;
	to.works = (u32)lane < THREADS_X - 2 && x < a.outWidth;
	to.direct = FORMAT != UYVY || (a.vector == 16 && a.outWidth % LANE == 0);
	if (FAST && Direct<FORMAT>::YES) {
		if (to.direct)
			to.places = placesOf<FORMAT>(a, x, y0);
		else
			to.words = wordPlaces(a, strip, y0);
	}
	HalfPlaces half;
	if (HALVED)
		half = halfPlaces(a, x, y0);
	const int start = FAST || !looks ? y0 : y0 - 2 * BESIDE;
	Words first[4];
	if (looks) {
		if (FAST) // else the loop fills the window: slower, and less to compile
#pragma unroll
			for (int i = 2 - BESIDE; i < 2 + BESIDE; i++)
				first[i] = fetch<FAST>(a, x, y0 - 2 + i);
		next[0] = fetch<FAST>(a, x, start + BESIDE);
		next[1] = fetch<FAST>(a, x, start + BESIDE + 1);
	}
	if (!KEPT)
		shareTone<FORMAT, KEPT>(a, tone); // on its way beside the first lines
	if (looks && FAST)
#pragma unroll
		for (int i = 2 - BESIDE; i < 2 + BESIDE; i++)
			widen<FAST>(w.s[i], linearise<FAST>(a, first[i], x, y0 - 2 + i, i), x, a.width);
#pragma unroll 1
	for (int y = start; y < y1; y += 2) {
		if (looks) {
			widen<FAST>(w.s[2 + BESIDE], linearise<FAST>(a, next[0], x, y + BESIDE, BESIDE), x, a.width);
			widen<FAST>(w.s[3 + BESIDE], linearise<FAST>(a, next[1], x, y + BESIDE + 1, BESIDE + 1), x, a.width);
			next[0] = fetch<FAST>(a, x, y + BESIDE + 2);
			next[1] = fetch<FAST>(a, x, y + BESIDE + 3);
		}
		if (FAST || y >= y0)
			makePatch<SIZE, FORMAT, KEPT, FAST>(a, w, tone, staged, held, to, strip, x, y);
		if (HALVED)
			makeHalf<FORMAT>(a, w, tone, half, to.works, y);
#pragma unroll
		for (int i = 2 - BESIDE; i < 2 + BESIDE; i++)
			w.s[i] = w.s[i + 2];
	}
}

template <int SIZE, int FORMAT, bool KEPT, bool FAST, bool HALVED>
INLINE void makePicture(const Args &given)
{
	// Taken from one lane, so that the compiler keeps these in registers: a multiply-add takes only one operand from the kernel's
	// parameters, and that is the factor.
	Args a = given;
	a.luma.offset = __shfl_sync(ALL_LANES, a.luma.offset, 0);
	a.cb.offset = __shfl_sync(ALL_LANES, a.cb.offset, 0);
	a.cr.offset = __shfl_sync(ALL_LANES, a.cr.offset, 0);
	__shared__ __align__(16) u8 tone[Tone<FORMAT, KEPT>::SIZE];
	__shared__ Staged<FORMAT> staged[THREADS_Y];
	// Taken from one lane, so that the compiler knows it to be the same in all, and uses uniform registers.
	const int line = __shfl_sync(ALL_LANES, threadIdx.y, 0);
	const int across = (a.outWidth + STRIP - 1) / STRIP, warp = blockIdx.x * THREADS_Y + line;
	const int strip = warp % across, row = warp / across;
	if (row >= a.stripRows) { // the others wait for its part of the table
		if (!KEPT)
			shareTone<FORMAT, KEPT>(a, tone);
		return;
	}
	// Lines that stay together: four if columns are written four at a time (keepColumns), or if lines share chroma with others.
	const int group = TRANSPOSED || HALVED ? 4 : 2, groups = (a.end - a.begin + group - 1) / group;
	const int y = a.begin + row * groups / a.stripRows * group, end = min(a.begin + (row + 1) * groups / a.stripRows * group, a.end);
	makeStrip<SIZE, FORMAT, KEPT, FAST, HALVED>(a, tone, staged[line], strip, y, end);
}

#define PICTURE(size, format, kept, fast)                                                                     \
	extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) picture(const Args a)               \
	{                                                                                                     \
		makePicture<size, format, kept, fast, false>(a);                                              \
	}

#define PAIR(format)                                                                                          \
	extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) pair(const Args a)                  \
	{                                                                                                     \
		makePicture<0, format, false, true, true>(a);                                                 \
	}

#define COLORS(size, fast)                                                                                    \
	extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) colors(const Args a)                \
	{                                                                                                     \
		makePicture<size, COLOR, false, fast, false>(a);                                              \
	}

#ifdef KERNEL
KERNEL
#endif
