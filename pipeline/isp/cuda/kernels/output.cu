// SPDX-License-Identifier: Apache-2.0
// From R'G'B' to the bytes of an output; §10, §12. A warp has the lines of STRIP pixels.

#define STRIP (THREADS_X * LANE)

enum { COLOR, UYVY, UYVP, RGB24, GREY, I420, NV12 };

// What a strip's line is in bytes.
template <int FORMAT>
struct Layout { enum { LINE = STRIP, CHROMA = 0 }; };
template <> struct Layout<UYVY> { enum { LINE = 2 * STRIP, CHROMA = 0 }; };
template <> struct Layout<UYVP> { enum { LINE = STRIP / 2 * 5, CHROMA = 0 }; };
template <> struct Layout<RGB24> { enum { LINE = 3 * STRIP, CHROMA = 0 }; };
template <> struct Layout<I420> { enum { LINE = STRIP, CHROMA = STRIP }; };
template <> struct Layout<NV12> { enum { LINE = STRIP, CHROMA = STRIP }; };

// Two lines of a strip as they will be written. A line of I420's chroma is Cb, then Cr.
template <int FORMAT>
struct Staged {
	__align__(16) u8 line[2][Layout<FORMAT>::LINE];
	__align__(16) u8 chroma[Layout<FORMAT>::CHROMA + 16];
};

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

INLINE u32 fourBytes(u32 a, u32 b, u32 c, u32 d) { return a | b << 8 | c << 16 | d << 24; }

// Entries of the tone table are bytes already, if nothing came in between.
INLINE void stageRGB(const Args &a, u8 *line, const Color *p, bool bytes)
{
	u32 v[3 * LANE];
#pragma unroll
	for (int i = 0; i < LANE; i++) {
		v[3 * i] = bytes ? p[i].r : converted(a.rgb, p[i].r, 0, 0);
		v[3 * i + 1] = bytes ? p[i].g : converted(a.rgb, p[i].g, 0, 0);
		v[3 * i + 2] = bytes ? p[i].b : converted(a.rgb, p[i].b, 0, 0);
	}
	uint2 *to = (uint2 *)(line + 3 * LANE * threadIdx.x);
#pragma unroll
	for (int i = 0; i < 3 * LANE / 8; i++) {
		const u32 *b = v + 8 * i;
		uint2 w;
		w.x = fourBytes(b[0], b[1], b[2], b[3]);
		w.y = fourBytes(b[4], b[5], b[6], b[7]);
		to[i] = w;
	}
}

// A line of a patch, p[0] being the pixel to its left.
template <int FORMAT, bool KEPT>
INLINE void stageLine(const Args &a, u8 *line, const Color *p)
{
	if (FORMAT == RGB24) {
		stageRGB(a, line, p + 1, !KEPT);
		return;
	}
	u32 y[LANE];
#pragma unroll
	for (int i = 0; i < LANE; i++)
		y[i] = lumaOf(a, p[1 + i]);
	if (FORMAT != UYVY && FORMAT != UYVP) {
		uint2 w;
		w.x = fourBytes(y[0], y[1], y[2], y[3]);
		w.y = fourBytes(y[4], y[5], y[6], y[7]);
		*(uint2 *)(line + LANE * threadIdx.x) = w;
		return;
	}
	u32 words[LANE / 2];
	u8 *bytes = line + LANE / 2 * 5 * threadIdx.x;
#pragma unroll
	for (int i = 0; i < LANE / 2; i++) {
		const Color k = plus(plus(p[2 * i], p[2 * i + 2]), plus(p[2 * i + 1], p[2 * i + 1]));
		const u32 cb = converted(a.cb, k.r, k.g, k.b), cr = converted(a.cr, k.r, k.g, k.b);
		words[i] = fourBytes(cb, y[2 * i], cr, y[2 * i + 1]);
		if (FORMAT == UYVP) {
			const u64 v = (u64)cb << 30 | (u64)y[2 * i] << 20 | (u64)cr << 10 | y[2 * i + 1];
#pragma unroll
			for (int j = 0; j < 5; j++)
				bytes[5 * i + j] = v >> (32 - 8 * j);
		}
	}
	if (FORMAT == UYVY) {
		uint4 w;
		w.x = words[0];
		w.y = words[1];
		w.z = words[2];
		w.w = words[3];
		*(uint4 *)(line + 2 * LANE * threadIdx.x) = w;
	}
}

// The chroma of 4:2:0.
template <int FORMAT>
INLINE void stageChroma(const Args &a, u8 *line, const Patch &q)
{
	u32 cb[LANE / 2], cr[LANE / 2];
#pragma unroll
	for (int i = 0; i < LANE / 2; i++) {
		const Color k = plus(plus(q.p[0][1 + 2 * i], q.p[0][2 + 2 * i]), plus(q.p[1][1 + 2 * i], q.p[1][2 + 2 * i]));
		cb[i] = converted(a.cb, k.r, k.g, k.b);
		cr[i] = converted(a.cr, k.r, k.g, k.b);
	}
	if (FORMAT == NV12) {
		uint2 w;
		w.x = fourBytes(cb[0], cr[0], cb[1], cr[1]);
		w.y = fourBytes(cb[2], cr[2], cb[3], cr[3]);
		*(uint2 *)(line + LANE * threadIdx.x) = w;
		return;
	}
	*(u32 *)(line + LANE / 2 * threadIdx.x) = fourBytes(cb[0], cb[1], cb[2], cb[3]);
	*(u32 *)(line + STRIP / 2 + LANE / 2 * threadIdx.x) = fourBytes(cr[0], cr[1], cr[2], cr[3]);
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

// Where in a line's bytes a place of the picture's line is: behind so many gaps for headers.
INLINE int placed(const Args &a, const Lines &l, int at)
{
	at += l.offset;
	if (!l.packets)
		return at;
	const u32 packet = (u32)at * a.reciprocal >> 40; // at / a.payload
	return packet * a.packetPitch + a.headerGap + (at - packet * a.payload);
}

// LINE is what a line could have.
template <typename WORD, int LINE>
INLINE void writeBy(const Args &a, const Lines &l)
{
	const size_t length = l.packets ? (size_t)a.packets * a.packetPitch : l.stride;
	u8 *begin = l.to + l.y * length;
#pragma unroll (sizeof(WORD) == 1 ? 1 : 4) // whole, this was more code than all the rest
	for (int k = 0; k < (LINE / (int)sizeof(WORD) + THREADS_X - 1) / THREADS_X; k++) {
		const int at = (k * THREADS_X + threadIdx.x) * (int)sizeof(WORD);
		if (at >= l.size)
			continue;
		u8 *to = begin + placed(a, l, at);
		const u8 *from = l.from + at;
#pragma unroll
		for (int row = 0; row < 2; row++, to += length, from += LINE) {
			if (row >= l.rows)
				break;
			if (at + (int)sizeof(WORD) <= l.size)
				*(WORD *)to = *(const WORD *)from;
			else
				for (int m = 0; m < l.size - at; m++)
					to[m] = from[m];
		}
	}
}

template <int LINE>
INLINE void writeLines(const Args &a, const Lines &l)
{
	if (a.vector == 16 && !l.packets && l.rows == 2 && l.size == LINE) { // most of a picture
		const int words = LINE / 16;
#pragma unroll
		for (int k = 0; k < (2 * words + THREADS_X - 1) / THREADS_X; k++) {
			const int i = k * THREADS_X + threadIdx.x, row = i >= words;
			if (i < 2 * words)
				*(uint4 *)(l.to + (size_t)(l.y + row) * l.stride + l.offset + 16 * (i - row * words)) = ((const uint4 *)l.from)[i];
		}
	} else if (a.vector == 16)
		writeBy<uint4, LINE>(a, l);
	else if (a.vector == 4)
		writeBy<u32, LINE>(a, l);
	else
		writeBy<u8, LINE>(a, l);
}

// Writes what a warp has staged.
template <int FORMAT>
INLINE void writeStaged(const Args &a, const Staged<FORMAT> &staged, int strip, int y)
{
	const int line = Layout<FORMAT>::LINE, chroma = Layout<FORMAT>::CHROMA;
	Lines l;
	l.from = staged.line[0];
	l.to = a.out;
	l.stride = a.outStride;
	l.y = y;
	l.rows = min(2, a.outHeight - y);
	l.offset = strip * line;
	l.size = min(line, a.lineBytes - l.offset);
	l.packets = a.packetPitch > 0;
	writeLines<line>(a, l);
	if (FORMAT != I420 && FORMAT != NV12)
		return;
	l.from = staged.chroma;
	l.to = a.out + (size_t)a.outStride * a.outHeight;
	l.y = y / 2;
	l.rows = 1;
	if (FORMAT == NV12) {
		writeLines<chroma>(a, l);
		return;
	}
	l.stride /= 2;
	l.offset /= 2;
	l.size /= 2;
	writeLines<chroma / 2>(a, l);
	l.from += STRIP / 2;
	l.to += (size_t)l.stride * (a.outHeight / 2);
	writeLines<chroma / 2>(a, l);
}
