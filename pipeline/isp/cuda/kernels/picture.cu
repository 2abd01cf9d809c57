// SPDX-License-Identifier: Apache-2.0
// The kernels that make pictures, from the sensor's bytes to the output's; §10, §12. A warp makes a strip of STRIP pixels
// from the top down, two lines at a time; its lanes keep the samples around their pixels in registers.

// Blocks on a multiprocessor: what is short of registers spills, and is faster with fewer warps (measured on an H100).
#if defined MALVAR || defined SHADING
#define MIN_BLOCKS 1
#else
#define MIN_BLOCKS 3
#endif

// Entries of the tone table: of RGB24 they are the bytes of the output, unless colours are kept before.
template <int FORMAT, bool KEPT> struct Tone { typedef u16 Code; enum { SIZE = KEPT ? 16 : 2 * 16384 }; };
template <> struct Tone<RGB24, false> { typedef u8 Code; enum { SIZE = 16384 }; };

INLINE void loadTone(const void *from, void *to, int size)
{
	for (int i = threadIdx.y * THREADS_X + threadIdx.x; i < size / 16; i += THREADS)
		((uint4 *)to)[i] = ((const uint4 *)from)[i];
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
			held.v[0][c] = kept(q.p[0][1 + c]);
			held.v[1][c] = kept(q.p[1][1 + c]);
		}
		return;
	}
#pragma unroll
	for (int c = 0; c < LANE; c++) {
		if (x + c >= a.outWidth)
			continue;
		const uint2 v = kept(q.p[0][1 + c]), w = kept(q.p[1][1 + c]);
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
				*(uint2 *)(a.colors + 4 * turned(a, x + c, y + r)) = kept(q.p[r][1 + c]);
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
				const uint2 v = kept(q.p[r][1 + c]), w = kept(q.p[r][2 + c]);
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
				*(uint2 *)(to + 4 * c) = kept(q.p[r][1 + c]);
	}
}
#endif

// A lane's patch, as bytes in staged.
template <int SIZE, int FORMAT, bool KEPT, bool FAST>
INLINE void makePatch(const Args &a, const Window &w, const void *tone, Staged<FORMAT> &staged, Held &held, int x, int y)
{
	Patch q;
	if (KEPT)
		sharpPatch(a, q, x, y);
	else if (SIZE > 0)
		blockPatch<SIZE, FAST>(a, q, x, y);
	else
		fullPatch(w, q);
	if (!KEPT) {
#pragma unroll
		for (int r = 0; r < 2; r++)
#pragma unroll
			for (int c = 0; c < 1 + LANE; c++)
				q.p[r][c] = toned(a, q.p[r][c], (const typename Tone<FORMAT, KEPT>::Code *)tone);
	}
	if (FORMAT == COLOR) {
		keepColors(a, q, held, x, y);
		return;
	}
	stageLine<FORMAT, KEPT>(a, staged.line[0], q.p[0]);
	stageLine<FORMAT, KEPT>(a, staged.line[1], q.p[1]);
	if (FORMAT == I420 || FORMAT == NV12)
		stageChroma<FORMAT>(a, staged.chroma, q);
}

// The lines of a strip. Those of samples that come next are on their way while two of pixels are made.
template <int SIZE, int FORMAT, bool KEPT, bool FAST>
INLINE void makeStrip(const Args &a, const void *tone, Staged<FORMAT> &staged, int strip, int y0, int y1)
{
	const int x = strip * STRIP + LANE * threadIdx.x;
	const bool works = x < a.outWidth, looks = SIZE == 0 && !KEPT;
	Window w;
	Held held;
	held.begin = y0;
	held.end = y1;
	Words next[2];
	const int start = FAST || !looks ? y0 : y0 - 2 * BESIDE;
	if (looks) {
		if (FAST) // else the loop fills the window: slower, and less to compile
#pragma unroll
			for (int i = 2 - BESIDE; i < 2 + BESIDE; i++)
				linearise<FAST>(a, w.s[i], fetch<FAST>(a, x, y0 - 2 + i), x, y0 - 2 + i, i);
		next[0] = fetch<FAST>(a, x, start + BESIDE);
		next[1] = fetch<FAST>(a, x, start + BESIDE + 1);
	}
#pragma unroll 1
	for (int y = start; y < y1; y += 2) {
		if (looks) {
			linearise<FAST>(a, w.s[2 + BESIDE], next[0], x, y + BESIDE, BESIDE);
			linearise<FAST>(a, w.s[3 + BESIDE], next[1], x, y + BESIDE + 1, BESIDE + 1);
			next[0] = fetch<FAST>(a, x, y + BESIDE + 2);
			next[1] = fetch<FAST>(a, x, y + BESIDE + 3);
		}
		if (works && y >= y0)
			makePatch<SIZE, FORMAT, KEPT, FAST>(a, w, tone, staged, held, x, y);
		if (FORMAT != COLOR && y >= y0) {
			__syncwarp();
			writeStaged<FORMAT>(a, staged, strip, y);
			__syncwarp();
		}
#pragma unroll
		for (int i = 2 - BESIDE; i < 2 + BESIDE; i++)
#pragma unroll
			for (int j = 0; j < ACROSS; j++)
				w.s[i][j] = w.s[i + 2][j];
	}
}

template <int SIZE, int FORMAT, bool KEPT>
INLINE void makePicture(const Args &a)
{
	__shared__ __align__(16) u8 tone[Tone<FORMAT, KEPT>::SIZE];
	__shared__ Staged<FORMAT> staged[THREADS_Y];
	if (!KEPT) {
		loadTone(a.tone, tone, sizeof(tone));
		__syncthreads();
	}
	const int across = (a.outWidth + STRIP - 1) / STRIP, warp = blockIdx.x * THREADS_Y + threadIdx.y;
	const int y = a.begin + warp / across * a.stripLines;
	if (y >= a.end)
		return;
	const int strip = warp % across, end = min(y + a.stripLines, a.end);
	if (!KEPT && canBeFast(a))
		makeStrip<SIZE, FORMAT, KEPT, true>(a, tone, staged[threadIdx.y], strip, y, end);
	else
		makeStrip<SIZE, FORMAT, KEPT, false>(a, tone, staged[threadIdx.y], strip, y, end);
}

#define PICTURE(size, format, kept)                                                                           \
	extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) picture(const Args a)               \
	{                                                                                                     \
		makePicture<size, format, kept>(a);                                                           \
	}

#define COLORS(size)                                                                                          \
	extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) colors(const Args a)                \
	{                                                                                                     \
		makePicture<size, COLOR, false>(a);                                                           \
	}

#ifdef KERNEL
KERNEL
#endif
