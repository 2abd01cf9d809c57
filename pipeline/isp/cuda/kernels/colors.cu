// SPDX-License-Identifier: Apache-2.0
// Three colours a pixel; §6 to §9. A lane makes a patch: LANE pixels of two lines. What nobody looks at the compiler leaves out.

#ifdef MALVAR
#define HALO 2
#else
#define HALO 1
#endif
#define BESIDE (MONO ? 0 : HALO) // lines of samples that are looked at above and below

struct Color { int r, g, b; };

// LANE pixels of two lines.
struct Patch { Color p[2][LANE]; };

INLINE int clip(int v)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12
	return __vimin_s32_relu(v, LINEAR_MAX);
#else
	return min(max(v, 0), LINEAR_MAX);
#endif
}

// The lines that a lane looks at: from two above its first to two below its second.
struct Window { Line s[6]; };

// What the demosaicing of a line looks at, by word. Its halves have sums of no more than 16 bits.
struct Around {
	u32 here[WORDS], over[WORDS]; // of each of a word's samples; over: the samples above and below it
	// Sums of a word and the next. What is beside the second sample of word j stands in the low half of j + 1, what is beside
	// the first in the high half of j.
	u32 beside[1 + WORDS], diagonal[1 + WORDS];
	// BIAS, plus twice the sample less the two samples two away, in its line and in its column.
	u32 bentAcross[WORDS], bentAlong[WORDS];
};

#define BIAS 0x8000 // so that a negative difference fits into an unsigned half

INLINE void lookAround(const Window &w, int i, Around &k)
{
	u32 over[2 + WORDS];
#pragma unroll
	for (int j = 0; j < 2 + WORDS; j++)
		over[j] = w.s[i - 1].v[j] + w.s[i + 1].v[j];
#pragma unroll
	for (int j = 0; j < 1 + WORDS; j++) {
		k.beside[j] = w.s[i].v[j] + w.s[i].v[j + 1];
		k.diagonal[j] = over[j] + over[j + 1];
	}
#pragma unroll
	for (int j = 0; j < WORDS; j++) {
		k.here[j] = w.s[i].v[1 + j];
		k.over[j] = over[1 + j];
#ifdef MALVAR
		const u32 twice = 2 * k.here[j] + both(BIAS, BIAS);
		k.bentAcross[j] = twice - w.s[i].v[j] - w.s[i].v[j + 2];
		k.bentAlong[j] = twice - w.s[i - 2].v[1 + j] - w.s[i + 2].v[1 + j];
#endif
	}
}

// sum + first * the low half of pair + second * the high one.
INLINE int times(u32 pair, int first, int second, int sum)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 610
	int d;
	asm("dp2a.lo.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(pair), "r"((first & 255) | (second & 255) << 8), "r"(sum));
	return d;
#else
	return sum + first * (int)half(pair, 0) + second * (int)half(pair, 1);
#endif
}

// By one half of the pair.
INLINE int timesHalf(u32 pair, int at, int factor, int sum) { return at ? times(pair, 0, factor, sum) : times(pair, factor, 0, sum); }

// §6.1, §6.2 of pixel c of a line; r has its parity.
INLINE Color demosaic(const Around &k, int r, int c)
{
	const int j = c / 2, at = c & 1;
	const bool redLine = (r & 1) == RED_Y, atOwn = at == (redLine ? RED_X : 1 - RED_X);
	const u32 beside = k.beside[j + at], diagonal = k.diagonal[j + at];
	const int atBeside = 1 - at;
	int own, green, third;
	own = green = half(k.here[j], at);
#ifdef MALVAR
	const u32 bent = __byte_perm(k.bentAcross[j], k.bentAlong[j], at ? 0x7632 : 0x5410); // across and along
	if (atOwn) {
		const int common = times(bent, 1, 1, 4 - 2 * BIAS);
		green = clip(timesHalf(k.over[j], at, 2, timesHalf(beside, atBeside, 2, common)) >> 3);
		third = clip(timesHalf(diagonal, atBeside, 4, 3 * common - 4) >> 4);
	} else {
		const int common = times(__byte_perm(k.here[j], diagonal, at ? 0x5432 : 0x7610), 8, -2, 8 - BIAS);
		own = clip(times(bent, 2, -1, timesHalf(beside, atBeside, 8, common)) >> 4);
		third = clip(times(bent, -1, 2, timesHalf(k.over[j], at, 8, common)) >> 4);
	}
#else
	if (atOwn) {
		green = (half(beside, atBeside) + half(k.over[j], at) + 2) >> 2;
		third = (half(diagonal, atBeside) + 2) >> 2;
	} else {
		own = (half(beside, atBeside) + 1) >> 1;
		third = (half(k.over[j], at) + 1) >> 1;
	}
#endif
	Color p = {redLine ? own : third, green, redLine ? third : own};
	return p;
}

INLINE Color grey(int v)
{
	Color k = {v, v, v};
	return k;
}

// Line r of a patch at full size.
INLINE void fullLine(const Window &w, Patch &q, int r)
{
	Around k;
	if (!MONO)
		lookAround(w, 2 + r, k);
#pragma unroll
	for (int c = 0; c < LANE; c++)
		q.p[r][c] = MONO ? grey(half(w.s[2 + r].v[1 + c / 2], c & 1)) : demosaic(k, r, c);
}

// §6.3: a quad of four samples, or of four sums of four quads, which are rounded by half of 2^shift. A word has those of a line.
INLINE Color quad(const u32 (&v)[2], int shift)
{
	if (MONO)
		return grey((half(v[0], 0) + half(v[0], 1) + half(v[1], 0) + half(v[1], 1) + (2 << shift)) >> (2 + shift));
	const u32 rest = (1 << shift) >> 1;
	Color k;
	k.r = (half(v[RED_Y], RED_X) + rest) >> shift;
	k.g = (half(v[RED_Y], 1 - RED_X) + half(v[1 - RED_Y], RED_X) + (1 << shift)) >> (1 + shift);
	k.b = (half(v[1 - RED_Y], 1 - RED_X) + rest) >> shift;
	return k;
}

// §6.3 of a patch of half or a quarter of the size.
template <int SIZE, bool FAST>
INLINE void blockPatch(const Args &a, Patch &q, int x, int y)
{
	const int side = 1 << SIZE;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		u32 v[LANE][2] = {};
#pragma unroll (FAST ? side : 1) // whole, the slow path would be most of what there is to compile
		for (int pair = 0; pair < side; pair += 2)
#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int g = 0; g < side; g++) { // LANE samples at a time
					const int first = side * x + LANE * g, line = side * (y + r) + pair + i;
					const Words s = linearise<FAST>(a, fetch<FAST>(a, first, line), first, line, i);
#pragma unroll
					for (int j = 0; j < WORDS; j++)
						v[(LANE * g + 2 * j) / side][i] += s.v[j];
				}
#pragma unroll
		for (int c = 0; c < LANE; c++)
			q.p[r][c] = quad(v[c], SIZE == 1 ? 0 : 2);
	}
}

// §7 and §8.
template <typename CODE>
INLINE Color toned(const Args &a, Color k, const CODE *tone)
{
#ifdef MATRIX
	const int *m = a.matrix;
	Color p = k;
	k.r = clip((m[0] * p.r + m[1] * p.g + m[2] * p.b + 2048) >> 12);
	k.g = clip((m[3] * p.r + m[4] * p.g + m[5] * p.b + 2048) >> 12);
	k.b = clip((m[6] * p.r + m[7] * p.g + m[8] * p.b + 2048) >> 12);
#endif
	if (MONO)
		return grey(tone[k.g]);
	k.r = tone[k.r];
	k.g = tone[k.g];
	k.b = tone[k.b];
	return k;
}

// A coordinate reflected once, then clamped into the frame: clamped values are not used.
INLINE int near(int i, int n)
{
	i = i < 0 ? -i : i;
	return max(i < n ? i : 2 * (n - 1) - i, 0);
}

// Colors in memory are R' G' B' and the luma of §9, in 8 bytes. A lane looks at a column and a line more on each side than it
// makes, and at each of them once; §9.
INLINE void sharpPatch(const Args &a, Patch &q, int x, int y)
{
	uint2 v[4][LANE + 2]; // from the line above and from the column to the left on
#pragma unroll
	for (int r = 0; r < 4; r++) {
		const uint2 *line = (const uint2 *)a.colors + (size_t)near(y + r - 1, a.outHeight) * a.outWidth;
#pragma unroll
		for (int c = 0; c < LANE + 2; c++)
			v[r][c] = line[near(x + c - 1, a.outWidth)];
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		int sum[LANE + 2]; // of the lumas of a column
#pragma unroll
		for (int c = 0; c < LANE + 2; c++)
			sum[c] = (v[r][c].y >> 16) + 2 * (v[r + 1][c].y >> 16) + (v[r + 2][c].y >> 16);
#pragma unroll
		for (int c = 0; c < LANE; c++) {
			const u32 rg = v[r + 1][c + 1].x, b = v[r + 1][c + 1].y;
			const int d = 16 * (b >> 16) - (sum[c] + 2 * sum[c + 1] + sum[c + 2]);
			const int e = (a.sharpen * d + 512) >> 10;
			q.p[r][c].r = min(max((int)(rg & 0xffff) + e, 0), WHITE);
			q.p[r][c].g = min(max((int)(rg >> 16) + e, 0), WHITE);
			q.p[r][c].b = min(max((int)(b & 0xffff) + e, 0), WHITE);
		}
	}
}
