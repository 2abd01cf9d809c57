// SPDX-License-Identifier: Apache-2.0
// Three colours a pixel; §6 to §9. A lane makes a patch: LANE pixels of two lines, and the pixel to the left of each, which
// 4:2:2 looks at; what nobody looks at the compiler leaves out.

#ifdef MALVAR
#define HALO 2
#else
#define HALO 1
#endif
#define BESIDE (MONO ? 0 : HALO) // lines of samples that are looked at above and below

struct Color { int r, g, b; };

struct Patch { Color p[2][1 + LANE]; };

INLINE int clip(int v) { return min(max(v, 0), LINEAR_MAX); }

// The lines that a lane looks at: from two above its first to two below its second.
struct Window { int s[6][ACROSS]; };

// §6.1, §6.2 of pixel c, from -1 on, of line r.
INLINE Color demosaic(const int (&s)[6][ACROSS], int r, int c)
{
	const int i = 2 + r, j = LEAD + c;
	const bool redLine = (r & 1) == RED_Y, atOwn = (c & 1) == (redLine ? RED_X : 1 - RED_X);
	const int here = s[i][j], h = s[i][j - 1] + s[i][j + 1], v = s[i - 1][j] + s[i + 1][j];
	int own = here, green = here, third;
#ifdef MALVAR
	const int h2 = s[i][j - 2] + s[i][j + 2], v2 = s[i - 2][j] + s[i + 2][j];
	const int diagonal = s[i - 1][j - 1] + s[i - 1][j + 1] + s[i + 1][j - 1] + s[i + 1][j + 1];
	if (atOwn) {
		green = clip((8 * here + 4 * (h + v) - 2 * (h2 + v2) + 8) >> 4);
		third = clip((12 * here + 4 * diagonal - 3 * (h2 + v2) + 8) >> 4);
	} else {
		own = clip((10 * here + 8 * h - 2 * (diagonal + h2) + v2 + 8) >> 4);
		third = clip((10 * here + 8 * v - 2 * (diagonal + v2) + h2 + 8) >> 4);
	}
#else
	if (atOwn) {
		green = (h + v + 2) >> 2;
		third = (s[i - 1][j - 1] + s[i - 1][j + 1] + s[i + 1][j - 1] + s[i + 1][j + 1] + 2) >> 2;
	} else {
		own = (h + 1) >> 1;
		third = (v + 1) >> 1;
	}
#endif
	Color k = {redLine ? own : third, green, redLine ? third : own};
	return k;
}

INLINE Color grey(int v)
{
	Color k = {v, v, v};
	return k;
}

// A patch at full size.
INLINE void fullPatch(const Window &w, Patch &q)
{
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int c = 0; c < 1 + LANE; c++)
			q.p[r][c] = MONO ? grey(w.s[2 + r][LEAD - 1 + c]) : demosaic(w.s, r, c - 1);
}

// §6.3: a quad of four samples, or of four sums of four quads, which are rounded by half of 2^shift.
INLINE Color quad(const u32 (&v)[2][2], int shift)
{
	if (MONO)
		return grey((v[0][0] + v[0][1] + v[1][0] + v[1][1] + (2 << shift)) >> (2 + shift));
	const u32 half = (1 << shift) >> 1;
	Color k;
	k.r = (v[RED_Y][RED_X] + half) >> shift;
	k.g = (v[RED_Y][1 - RED_X] + v[1 - RED_Y][RED_X] + (1 << shift)) >> (1 + shift);
	k.b = (v[1 - RED_Y][1 - RED_X] + half) >> shift;
	return k;
}

// §6.3 of a patch of half or a quarter of the size. The pixel to the left of pixel 0 is pixel 1.
template <int SIZE, bool FAST>
INLINE void blockPatch(const Args &a, Patch &q, int x, int y)
{
	const int side = 1 << SIZE;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		u32 v[1 + LANE][2][2] = {};
#pragma unroll (FAST ? side : 1) // whole, the slow path would be most of what there is to compile
		for (int pair = 0; pair < side; pair += 2)
#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int g = 0; g < side; g++) { // LANE samples at a time
					int s[ACROSS];
					const int first = side * x + LANE * g, line = side * (y + r) + pair + i;
					linearise<FAST>(a, s, fetch<FAST>(a, first, line), first, line, i);
#pragma unroll
					for (int j = 0; j < LANE; j++)
						v[1 + (LANE * g + j) / side][i][j & 1] += s[LEAD + j];
					if (g == 0)
#pragma unroll
						for (int j = 0; j < side; j++)
							v[0][i][j & 1] += s[LEAD - side + j];
				}
#pragma unroll
		for (int c = 0; c < 1 + LANE; c++)
			q.p[r][c] = quad(v[c], SIZE == 1 ? 0 : 2);
		if (x == 0)
			q.p[r][0] = q.p[r][2];
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

// What is reflected once, and somewhere in the frame if that is not enough: then nobody looks at it.
INLINE int near(int i, int n)
{
	i = i < 0 ? -i : i;
	return max(i < n ? i : 2 * (n - 1) - i, 0);
}

// Colors in memory are R' G' B' and the luma of §9, in 8 bytes. A lane looks at three columns and two lines more than it makes,
// and at each of them once; §9.
INLINE void sharpPatch(const Args &a, Patch &q, int x, int y)
{
	uint2 v[4][LANE + 3]; // from the line above and from two columns to the left on
#pragma unroll
	for (int r = 0; r < 4; r++) {
		const uint2 *line = (const uint2 *)a.colors + (size_t)near(y + r - 1, a.outHeight) * a.outWidth;
#pragma unroll
		for (int c = 0; c < LANE + 3; c++)
			v[r][c] = line[near(x + c - 2, a.outWidth)];
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		int sum[LANE + 3]; // of the lumas of a column
#pragma unroll
		for (int c = 0; c < LANE + 3; c++)
			sum[c] = (v[r][c].y >> 16) + 2 * (v[r + 1][c].y >> 16) + (v[r + 2][c].y >> 16);
#pragma unroll
		for (int c = 0; c < 1 + LANE; c++) {
			const u32 rg = v[r + 1][c + 1].x, b = v[r + 1][c + 1].y;
			const int d = 16 * (b >> 16) - (sum[c] + 2 * sum[c + 1] + sum[c + 2]);
			const int e = (a.sharpen * d + 512) >> 10;
			q.p[r][c].r = min(max((int)(rg & 0xffff) + e, 0), WHITE);
			q.p[r][c].g = min(max((int)(rg >> 16) + e, 0), WHITE);
			q.p[r][c].b = min(max((int)(b & 0xffff) + e, 0), WHITE);
		}
	}
}
