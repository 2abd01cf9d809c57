// SPDX-License-Identifier: Apache-2.0
// From R'G'B' to the bytes of an output; §10, §12. A warp has the lines of STRIP pixels.

enum { COLOR, UYVY, UYVP, RGB24, GREY, I420, NV12 };

// The length of a strip's line in bytes.
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

// Formats in which the pixels that a lane makes of a line are whole words, so that the lane can write them. Others are staged.
template <int FORMAT> struct Direct { enum { YES = FORMAT == UYVY || FORMAT == GREY || FORMAT == I420 || FORMAT == NV12 }; };

// Unsigned, because sums of which the highest byte is used have 32 bits.
INLINE u32 weighed(const Conversion &k, u32 r, u32 g, u32 b) { return k.c[0] * r + k.c[1] * g + k.c[2] * b + k.offset; }

// Values of 10 bits, or of R'G'B'.
INLINE u32 converted(const Conversion &k, int r, int g, int b) { return weighed(k, r, g, b) >> k.shift; }

INLINE Color plus(const Color &p, const Color &q)
{
	Color k = {p.r + q.r, p.g + q.g, p.b + q.b};
	return k;
}

INLINE u32 fourBytes(u32 a, u32 b, u32 c, u32 d) { return a | b << 8 | c << 16 | d << 24; }

// The highest bytes of four sums: values of 8 bits have a shift of 24 (newArgs).
INLINE u32 fourTops(u32 a, u32 b, u32 c, u32 d)
{
	return __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
}

// Entries of the tone table are bytes already, if nothing came in between.
INLINE void stageRGB(const Args &a, u8 *line, const Color (&p)[LANE], bool bytes)
{
	u32 v[3 * LANE];
#pragma unroll
	for (int i = 0; i < LANE; i++) {
		v[3 * i] = bytes ? p[i].r : converted(a.rgb, p[i].r, 0, 0);
		v[3 * i + 1] = bytes ? p[i].g : converted(a.rgb, p[i].g, 0, 0);
		v[3 * i + 2] = bytes ? p[i].b : converted(a.rgb, p[i].b, 0, 0);
	}
	uint2 *to = (uint2 *)(line + 3 * LANE * (threadIdx.x - 1));
#pragma unroll
	for (int i = 0; i < 3 * LANE / 8; i++) {
		const u32 *b = v + 8 * i;
		uint2 w;
		w.x = fourBytes(b[0], b[1], b[2], b[3]);
		w.y = fourBytes(b[4], b[5], b[6], b[7]);
		to[i] = w;
	}
}

// The luma of a lane's pixels.
INLINE uint2 lumas(const Args &a, const Color (&p)[LANE])
{
	u32 y[LANE];
#pragma unroll
	for (int i = 0; i < LANE; i++)
		y[i] = weighed(a.luma, p[i].r, p[i].g, p[i].b);
	uint2 w;
	w.x = fourTops(y[0], y[1], y[2], y[3]);
	w.y = fourTops(y[4], y[5], y[6], y[7]);
	return w;
}

// The sums of three pixels that 4:2:2 is made of.
INLINE Color around422(const Color (&p)[LANE], const Color &left, int i)
{
	return plus(plus(i == 0 ? left : p[2 * i - 1], p[2 * i + 1]), plus(p[2 * i], p[2 * i]));
}

INLINE uint4 pixels422(const Args &a, const Color (&p)[LANE], const Color &left)
{
	u32 words[LANE / 2];
#pragma unroll
	for (int i = 0; i < LANE / 2; i++) {
		const Color k = around422(p, left, i), &first = p[2 * i], &second = p[2 * i + 1];
		words[i] = fourTops(weighed(a.cb, k.r, k.g, k.b), weighed(a.luma, first.r, first.g, first.b),
			weighed(a.cr, k.r, k.g, k.b), weighed(a.luma, second.r, second.g, second.b));
	}
	uint4 w;
	w.x = words[0];
	w.y = words[1];
	w.z = words[2];
	w.w = words[3];
	return w;
}

// The pixel groups of RFC 4175 with 10 bits.
INLINE void stageUYVP(const Args &a, u8 *bytes, const Color (&p)[LANE], const Color &left)
{
#pragma unroll
	for (int i = 0; i < LANE / 2; i++) {
		const Color k = around422(p, left, i), &first = p[2 * i], &second = p[2 * i + 1];
		const u64 v = (u64)converted(a.cb, k.r, k.g, k.b) << 30 | (u64)converted(a.luma, first.r, first.g, first.b) << 20 |
			(u64)converted(a.cr, k.r, k.g, k.b) << 10 | converted(a.luma, second.r, second.g, second.b);
#pragma unroll
		for (int j = 0; j < 5; j++)
			bytes[5 * i + j] = v >> (32 - 8 * j);
	}
}

// A line of a patch. left is the pixel to its left.
template <int FORMAT, bool KEPT>
INLINE void stageLine(const Args &a, u8 *line, const Color (&p)[LANE], const Color &left)
{
	const int lane = threadIdx.x - 1;
	if (FORMAT == RGB24)
		stageRGB(a, line, p, !KEPT);
	else if (FORMAT == UYVP)
		stageUYVP(a, line + LANE / 2 * 5 * lane, p, left);
	else if (FORMAT == UYVY)
		*(uint4 *)(line + 2 * LANE * lane) = pixels422(a, p, left);
	else
		*(uint2 *)(line + LANE * lane) = lumas(a, p);
}

// The chroma of 4:2:0: Cb and Cr in turns, or four of Cb and four of Cr.
template <int FORMAT>
INLINE uint2 chroma420(const Args &a, const Patch &q)
{
	u32 cb[LANE / 2], cr[LANE / 2];
#pragma unroll
	for (int i = 0; i < LANE / 2; i++) {
		const Color k = plus(plus(q.p[0][2 * i], q.p[0][2 * i + 1]), plus(q.p[1][2 * i], q.p[1][2 * i + 1]));
		cb[i] = weighed(a.cb, k.r, k.g, k.b);
		cr[i] = weighed(a.cr, k.r, k.g, k.b);
	}
	uint2 w;
	w.x = FORMAT == NV12 ? fourTops(cb[0], cr[0], cb[1], cr[1]) : fourTops(cb[0], cb[1], cb[2], cb[3]);
	w.y = FORMAT == NV12 ? fourTops(cb[2], cr[2], cb[3], cr[3]) : fourTops(cr[0], cr[1], cr[2], cr[3]);
	return w;
}

template <int FORMAT>
INLINE void stageChroma(const Args &a, u8 *line, const Patch &q)
{
	const int lane = threadIdx.x - 1;
	const uint2 w = chroma420<FORMAT>(a, q);
	if (FORMAT == NV12) {
		*(uint2 *)(line + LANE * lane) = w;
		return;
	}
	*(u32 *)(line + LANE / 2 * lane) = w.x;
	*(u32 *)(line + STRIP / 2 + LANE / 2 * lane) = w.y;
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

template <bool YES> struct Widest { typedef uint4 Word; };
template <> struct Widest<false> { typedef uint2 Word; };

template <int LINE>
INLINE void writeLines(const Args &a, const Lines &l)
{
	if (a.vector == 16) // strips may begin in the middle of 16 bytes
		writeBy<typename Widest<LINE % 16 == 0>::Word, LINE>(a, l);
	else if (a.vector >= 4)
		writeBy<u32, LINE>(a, l);
	else
		writeBy<u8, LINE>(a, l);
}

// Where a lane writes its next line, from the beginning of the picture.
struct Places {
	u32 line, chroma;
	u32 length; // of a line
};

template <int FORMAT>
INLINE Places placesOf(const Args &a, int x, int y)
{
	Lines l;
	l.offset = 0;
	l.packets = a.packetPitch > 0;
	Places p;
	p.length = l.packets ? a.packets * a.packetPitch : a.outStride;
	p.line = y * p.length + placed(a, l, FORMAT == UYVY ? 2 * x : x);
	p.chroma = a.outStride * a.outHeight + (FORMAT == NV12 ? y / 2 * a.outStride + x : y / 2 * (a.outStride / 2) + x / 2);
	return p;
}

// Writes the chroma of a patch.
template <int FORMAT>
INLINE void writeChroma(const Args &a, Places &at, const Patch &q)
{
	const uint2 w = chroma420<FORMAT>(a, q);
	if (FORMAT == NV12) {
		*(uint2 *)(a.out + at.chroma) = w;
		at.chroma += a.outStride;
		return;
	}
	*(u32 *)(a.out + at.chroma) = w.x;
	*(u32 *)(a.out + (at.chroma + a.outStride / 2 * (a.outHeight / 2))) = w.y;
	at.chroma += a.outStride / 2;
}

enum { WORDS_A_LANE = (Layout<UYVY>::LINE / 4 + THREADS_X - 1) / THREADS_X };

// Where a lane writes words of the next line, from the beginning of the picture. There are 128 bytes of pixels from one to the
// next.
struct WordPlaces {
	u32 at[WORDS_A_LANE];
	int count;
	u32 length; // of a line
};

INLINE WordPlaces wordPlaces(const Args &a, int strip, int y)
{
	Lines l;
	l.offset = strip * Layout<UYVY>::LINE;
	l.packets = a.packetPitch > 0;
	const int size = min((int)Layout<UYVY>::LINE, a.lineBytes - l.offset);
	WordPlaces p;
	p.length = l.packets ? a.packets * a.packetPitch : a.outStride;
	p.count = 0;
#pragma unroll
	for (int k = 0; k < WORDS_A_LANE; k++) {
		const int at = 4 * (k * THREADS_X + threadIdx.x);
		p.at[k] = y * p.length + placed(a, l, at);
		p.count += at < size;
	}
	return p;
}

INLINE void writeWords(const Args &a, WordPlaces &p, const u8 *line)
{
#pragma unroll
	for (int k = 0; k < WORDS_A_LANE; k++) {
		if (k < p.count)
			*(u32 *)(a.out + p.at[k]) = ((const u32 *)line)[k * THREADS_X + threadIdx.x];
		p.at[k] += p.length;
	}
}

// Where a lane writes its next lines of a Half, and the sums of two pixels each of a line above, which it shares chroma with.
struct HalfPlaces {
	u32 line, chroma;
	Color above[LANE / 4];
};

INLINE HalfPlaces halfPlaces(const Args &a, int x, int y)
{
	HalfPlaces p;
	p.line = y / 2 * a.half.stride + x / 2;
	p.chroma = a.half.stride * a.half.height + y / 4 * (a.half.stride / 2) + x / 4;
	return p;
}

// Writes a line of LANE / 2 pixels, and with every second one the chroma of two.
INLINE void writeHalf(const Args &a, HalfPlaces &at, const Color (&p)[LANE / 2], bool second)
{
	const Half &h = a.half;
	u32 y[LANE / 2];
#pragma unroll
	for (int i = 0; i < LANE / 2; i++)
		y[i] = weighed(h.luma, p[i].r, p[i].g, p[i].b);
	*(u32 *)(h.out + at.line) = fourTops(y[0], y[1], y[2], y[3]);
	at.line += h.stride;
	u32 cb[LANE / 4], cr[LANE / 4];
#pragma unroll
	for (int i = 0; i < LANE / 4; i++) {
		const Color sum = plus(p[2 * i], p[2 * i + 1]), k = plus(at.above[i], sum);
		at.above[i] = sum;
		cb[i] = weighed(h.cb, k.r, k.g, k.b);
		cr[i] = weighed(h.cr, k.r, k.g, k.b);
	}
	if (!second)
		return;
	*(u16 *)(h.out + at.chroma) = __byte_perm(cb[0], cb[1], 0x0073);
	*(u16 *)(h.out + (at.chroma + h.stride / 2 * (h.height / 2))) = __byte_perm(cr[0], cr[1], 0x0073);
	at.chroma += h.stride / 2;
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
