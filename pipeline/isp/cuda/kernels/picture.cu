// The kernels that make pictures: a tile at a time, from the sensor's bytes to the output's; §10, §12.

enum { COLOR, UYVY, UYVP, RGB24, GREY, I420, NV12 };

// What a tile's line is in bytes.
template <int FORMAT>
struct Layout { enum { LINE = TILE_W, CHROMA = 0 }; };
template <> struct Layout<UYVY> { enum { LINE = 2 * TILE_W, CHROMA = 0 }; };
template <> struct Layout<UYVP> { enum { LINE = TILE_W / 2 * 5, CHROMA = 0 }; };
template <> struct Layout<RGB24> { enum { LINE = 3 * TILE_W, CHROMA = 0 }; };
template <> struct Layout<I420> { enum { LINE = TILE_W, CHROMA = TILE_W }; };
template <> struct Layout<NV12> { enum { LINE = TILE_W, CHROMA = TILE_W }; };

// A tile's bytes as they will be written. A line of I420's chroma is Cb, then Cr.
template <int FORMAT>
struct Staged {
	__align__(16) u8 line[TILE_H][Layout<FORMAT>::LINE];
	__align__(16) u8 chroma[TILE_H / 2][Layout<FORMAT>::CHROMA + 16];
};

// Entries of the tone table: of RGB24 they are the bytes of the output, unless sharpening comes in between.
template <int FORMAT, bool SHARP> struct Tone { typedef u16 Code; enum { SIZE = SHARP ? 16 : 2 * 16384 }; };
template <> struct Tone<RGB24, false> { typedef u8 Code; enum { SIZE = 16384 }; };

INLINE void loadTone(const void *from, void *to, int size)
{
	for (int i = threadIdx.y * THREADS_X + threadIdx.x; i < size / 16; i += THREADS)
		((uint4 *)to)[i] = ((const uint4 *)from)[i];
}

INLINE u32 converted(const Conversion &k, int r, int g, int b)
{
	return (k.c[0] * r + k.c[1] * g + k.c[2] * b + k.offset) >> k.shift;
}

INLINE u32 lumaOf(const Args &a, const Color &p) { return converted(a.luma, p.r, p.g, p.b); }

INLINE Color plus(const Color &p, const Color &q)
{
	Color k = {p.r + q.r, p.g + q.g, p.b + q.b};
	return k;
}

INLINE void stageRGB(const Args &a, u32 *to, const Color *p, bool bytes)
{
	u32 v[12];
#pragma unroll
	for (int i = 0; i < 4; i++) {
		v[3 * i] = bytes ? p[i].r : converted(a.rgb, p[i].r, 0, 0);
		v[3 * i + 1] = bytes ? p[i].g : converted(a.rgb, p[i].g, 0, 0);
		v[3 * i + 2] = bytes ? p[i].b : converted(a.rgb, p[i].b, 0, 0);
	}
#pragma unroll
	for (int i = 0; i < 3; i++)
		to[i] = v[4 * i] | v[4 * i + 1] << 8 | v[4 * i + 2] << 16 | v[4 * i + 3] << 24;
}

// A line of a patch, p[0] being the pixel to its left.
template <int FORMAT, bool SHARP>
INLINE void stageLine(const Args &a, u8 *line, const Color *p)
{
	if (FORMAT == RGB24) {
		stageRGB(a, (u32 *)(line + 12 * threadIdx.x), p + 1, !SHARP);
		return;
	}
	u32 y[4];
#pragma unroll
	for (int i = 0; i < 4; i++)
		y[i] = lumaOf(a, p[1 + i]);
	if (FORMAT != UYVY && FORMAT != UYVP) {
		*(u32 *)(line + 4 * threadIdx.x) = y[0] | y[1] << 8 | y[2] << 16 | y[3] << 24;
		return;
	}
	u32 cb[2], cr[2];
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const Color k = plus(plus(p[2 * i], p[2 * i + 2]), plus(p[2 * i + 1], p[2 * i + 1]));
		cb[i] = converted(a.cb, k.r, k.g, k.b);
		cr[i] = converted(a.cr, k.r, k.g, k.b);
	}
	if (FORMAT == UYVY) {
		u32 *to = (u32 *)(line + 8 * threadIdx.x);
		to[0] = cb[0] | y[0] << 8 | cr[0] << 16 | y[1] << 24;
		to[1] = cb[1] | y[2] << 8 | cr[1] << 16 | y[3] << 24;
		return;
	}
	u8 *to = line + 10 * threadIdx.x;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const u64 v = (u64)cb[i] << 30 | (u64)y[2 * i] << 20 | (u64)cr[i] << 10 | y[2 * i + 1];
#pragma unroll
		for (int j = 0; j < 5; j++)
			to[5 * i + j] = v >> (32 - 8 * j);
	}
}

// The chroma of 4:2:0.
template <int FORMAT>
INLINE void stageChroma(const Args &a, u8 *line, const Patch &q)
{
	u32 cb[2], cr[2];
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const Color k = plus(plus(q.p[0][1 + 2 * i], q.p[0][2 + 2 * i]), plus(q.p[1][1 + 2 * i], q.p[1][2 + 2 * i]));
		cb[i] = converted(a.cb, k.r, k.g, k.b);
		cr[i] = converted(a.cr, k.r, k.g, k.b);
	}
	if (FORMAT == NV12) {
		*(u32 *)(line + 4 * threadIdx.x) = cb[0] | cr[0] << 8 | cb[1] << 16 | cr[1] << 24;
		return;
	}
	*(u16 *)(line + 2 * threadIdx.x) = cb[0] | cb[1] << 8;
	*(u16 *)(line + TILE_W / 2 + 2 * threadIdx.x) = cr[0] | cr[1] << 8;
}

INLINE void keepColors(const Args &a, const Patch &q, int x, int y)
{
	for (int r = 0; r < 2 && y + r < a.outHeight; r++)
		for (int c = 0; c < 4 && x + c < a.outWidth; c++) {
			const Color &p = q.p[r][1 + c];
			u32 *to = (u32 *)(a.colors + 4 * ((size_t)(y + r) * a.outWidth + x + c));
			to[0] = p.r | p.g << 16;
			to[1] = p.b | (p.r + 2 * p.g + p.b + 2) >> 2 << 16;
		}
}

// A thread's patch, as bytes in staged.
template <int SIZE, int FORMAT, bool SHARP>
INLINE void makePatch(const Args &a, const Tile &t, const void *tone, Staged<FORMAT> &staged, int x0, int y0)
{
	const int x = x0 + 4 * threadIdx.x, y = y0 + 2 * threadIdx.y;
	if (x >= a.outWidth || y >= a.outHeight)
		return;
	Patch q;
	if (SHARP)
		sharpPatch(a, q, x, y);
	else if (SIZE > 0)
		blockPatch<SIZE>(a, q, x, y);
	else if (MONO)
		monoPatch(a, q, x, y);
	else
		mosaicPatch(t, q);
	if (!SHARP) {
#pragma unroll
		for (int r = 0; r < 2; r++)
#pragma unroll
			for (int c = 0; c < 5; c++)
				q.p[r][c] = toned(a, q.p[r][c], (const typename Tone<FORMAT, SHARP>::Code *)tone);
	}
	if (FORMAT == COLOR) {
		keepColors(a, q, x, y);
		return;
	}
	stageLine<FORMAT, SHARP>(a, staged.line[2 * threadIdx.y], q.p[0]);
	stageLine<FORMAT, SHARP>(a, staged.line[2 * threadIdx.y + 1], q.p[1]);
	if (FORMAT == I420 || FORMAT == NV12)
		stageChroma<FORMAT>(a, staged.chroma[threadIdx.y], q);
}

// Some lines of a plane, as they stand in shared memory and where they go.
struct Lines {
	const u8 *from;
	u8 *to;
	int stride;
	int y, rows;      // in the plane
	int offset, size; // in a line
	bool packets;
};

INLINE u8 *place(const Args &a, const Lines &l, int row, int at)
{
	const int y = l.y + row;
	at += l.offset;
	if (!l.packets)
		return l.to + (size_t)y * l.stride + at;
	const size_t packet = (size_t)y * (a.lineBytes / a.payload) + at / a.payload;
	return l.to + packet * a.packetPitch + a.headerGap + at % a.payload;
}

// LINE is what a line could have, PITCH from one to the next.
template <typename WORD, int LINE, int PITCH>
INLINE void writeBy(const Args &a, const Lines &l)
{
	const int words = LINE / (int)sizeof(WORD);
	for (int i = threadIdx.y * THREADS_X + threadIdx.x; i < l.rows * words; i += THREADS) {
		const int row = i / words, at = i % words * (int)sizeof(WORD);
		if (at >= l.size)
			continue;
		const u8 *from = l.from + row * PITCH + at;
		u8 *to = place(a, l, row, at);
		if (at + (int)sizeof(WORD) <= l.size)
			*(WORD *)to = *(const WORD *)from;
		else
			for (int k = 0; k < l.size - at; k++)
				to[k] = from[k];
	}
}

template <int LINE, int PITCH>
INLINE void writeLines(const Args &a, const Lines &l)
{
	if (a.vector == 16)
		writeBy<uint4, LINE, PITCH>(a, l);
	else if (a.vector == 4)
		writeBy<u32, LINE, PITCH>(a, l);
	else
		writeBy<u8, LINE, PITCH>(a, l);
}

template <int FORMAT>
INLINE void writeTile(const Args &a, const Staged<FORMAT> &staged, int x0, int y0)
{
	const int line = Layout<FORMAT>::LINE, chroma = Layout<FORMAT>::CHROMA;
	Lines l;
	l.from = staged.line[0];
	l.to = a.out;
	l.stride = a.outStride;
	l.y = y0;
	l.rows = min(TILE_H, a.outHeight - y0);
	l.offset = x0 / TILE_W * line;
	l.size = min(line, a.lineBytes - l.offset);
	l.packets = a.packetPitch > 0;
	writeLines<line, line>(a, l);
	if (FORMAT != I420 && FORMAT != NV12)
		return;
	l.from = staged.chroma[0];
	l.to = a.out + (size_t)a.outStride * a.outHeight;
	l.y = y0 / 2;
	l.rows /= 2;
	if (FORMAT == NV12) {
		writeLines<chroma, chroma + 16>(a, l);
		return;
	}
	l.stride /= 2;
	l.offset /= 2;
	l.size /= 2;
	writeLines<chroma / 2, chroma + 16>(a, l);
	l.from += TILE_W / 2;
	l.to += (size_t)l.stride * (a.outHeight / 2);
	writeLines<chroma / 2, chroma + 16>(a, l);
}

// Blocks take tiles in turn, so that the tone table is read once a block.
template <int SIZE, int FORMAT, bool SHARP>
INLINE void picture(const Args &a)
{
	__shared__ __align__(16) u8 tone[Tone<FORMAT, SHARP>::SIZE];
	__shared__ Tile tile;
	__shared__ Staged<FORMAT> staged;
	const int across = (a.outWidth + TILE_W - 1) / TILE_W, tiles = across * ((a.outHeight + TILE_H - 1) / TILE_H);
	if (!SHARP)
		EACH_THREAD(loadTone(a.tone, tone, sizeof(tone)));
	for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
		const int x0 = i % across * TILE_W, y0 = i / across * TILE_H;
		if (SIZE == 0 && !SHARP && !MONO)
			EACH_THREAD(loadTile(a, tile, x0, y0));
		EACH_THREAD((makePatch<SIZE, FORMAT, SHARP>(a, tile, tone, staged, x0, y0)));
		if (FORMAT != COLOR)
			EACH_THREAD(writeTile<FORMAT>(a, staged, x0, y0));
	}
}

#define PICTURE(number, size, format, sharp)                                                                  \
	extern "C" __global__ void __launch_bounds__(THREADS) picture##number(const Args a)                   \
	{                                                                                                     \
		picture<size, format, sharp>(a);                                                              \
	}

#define COLORS(size)                                                                                          \
	extern "C" __global__ void __launch_bounds__(THREADS) colors##size(const Args a)                      \
	{                                                                                                     \
		picture<size, COLOR, false>(a);                                                               \
	}

PICTURES
