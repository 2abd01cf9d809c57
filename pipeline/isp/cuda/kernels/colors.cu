// Three colours a pixel; §6 to §9. A thread makes a patch of 4x2 pixels and the pixel to the left of each of its lines,
// which 4:2:2 looks at; what nobody looks at the compiler leaves out.

#define TILE_W 128
#define TILE_H 16
#define TILE_LEAD 6 // samples in front of a tile's first pixel: those that are looked at, and what aligns them
#define TILE_PITCH (TILE_W + 12)

struct Color { int r, g, b; };

struct Patch { Color p[2][5]; };

INLINE int clip(int v) { return min(max(v, 0), LINEAR_MAX); }

// A tile of linear samples with two lines around it.
struct Tile { __align__(16) u16 v[TILE_H + 4][TILE_PITCH]; };

INLINE void loadTile(const Args &a, Tile &t, int x0, int y0)
{
	const int groups = TILE_W / 4 + 2;
	for (int i = threadIdx.y * THREADS_X + threadIdx.x; i < groups * (TILE_H + 4); i += THREADS) {
		int line = i / groups, x = 4 * (i % groups) - 4, y = y0 + line - 2;
		if (y > a.height + 2 || x0 + x > a.width + 4)
			continue; // no patch looks there
		Four f = linearFour(a, x0 + x, y);
		u32 *to = (u32 *)&t.v[line][x + TILE_LEAD];
		to[0] = f.v[0] | f.v[1] << 16;
		to[1] = f.v[2] | f.v[3] << 16;
	}
}

// §6.1, §6.2 of the sample s[2 + r][3 + c].
INLINE Color demosaic(const int (&s)[6][10], int r, int c)
{
	const int i = 2 + r, j = 4 + c;
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

// §6.1, §6.2 of a patch.
INLINE void mosaicPatch(const Tile &t, Patch &q)
{
	int s[6][10];
#pragma unroll
	for (int i = 0; i < 6; i++) {
		const u16 *line = &t.v[2 * threadIdx.y + i][4 * threadIdx.x + TILE_LEAD - 4];
		const u32 first = *(const u32 *)line;
		const uint2 w = *(const uint2 *)(line + 2), e = *(const uint2 *)(line + 6);
		const u32 pairs[5] = {first, w.x, w.y, e.x, e.y};
#pragma unroll
		for (int j = 0; j < 5; j++) {
			s[i][2 * j] = pairs[j] & 0xffff;
			s[i][2 * j + 1] = pairs[j] >> 16;
		}
	}
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int c = 0; c < 5; c++)
			q.p[r][c] = demosaic(s, r, c - 1);
}

INLINE Color grey(int v)
{
	Color k = {v, v, v};
	return k;
}

// A monochrome sensor's patch at full size.
INLINE void monoPatch(const Args &a, Patch &q, int x, int y)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		Four f = linearFour(a, x, y + r);
		q.p[r][0] = grey(linearFour(a, x - 4, y + r).v[3]);
#pragma unroll
		for (int i = 0; i < 4; i++)
			q.p[r][1 + i] = grey(f.v[i]);
	}
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

// A pixel of half or a quarter of the size.
template <int SIZE>
INLINE Color block(const Args &a, int x, int y)
{
	u32 v[2][2] = {};
	if (SIZE == 1) {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			Four f = linearFour(a, 2 * x & ~3, 2 * y + i);
			v[i][0] = x & 1 ? f.v[2] : f.v[0];
			v[i][1] = x & 1 ? f.v[3] : f.v[1];
		}
		return quad(v, 0);
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		Four f = linearFour(a, 4 * x, 4 * y + i);
		v[i & 1][0] += f.v[0] + f.v[2];
		v[i & 1][1] += f.v[1] + f.v[3];
	}
	return quad(v, 2);
}

// The pixel to the left: pixel 1 of pixel 0.
INLINE int leftOf(int x) { return x > 0 ? x - 1 : 1; }

template <int SIZE>
INLINE void blockPatch(const Args &a, Patch &q, int x, int y)
{
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int c = 0; c < 5; c++)
			q.p[r][c] = block<SIZE>(a, c > 0 ? x + c - 1 : leftOf(x), y + r);
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

// Colors in memory are R' G' B' and the luma of §9.
INLINE const u16 *colorAt(const Args &a, int x, int y)
{
	x = reflect(x, a.outWidth);
	y = reflect(y, a.outHeight);
	return a.colors + 4 * ((size_t)y * a.outWidth + x);
}

INLINE Color sharpened(const Args &a, int x, int y)
{
	const u16 *at = colorAt(a, x, y);
	int d = 16 * at[3];
	for (int i = 0; i < 9; i++) {
		const int dx = i % 3 - 1, dy = i / 3 - 1;
		d -= (2 - dx * dx) * (2 - dy * dy) * colorAt(a, x + dx, y + dy)[3];
	}
	const int e = (a.sharpen * d + 512) >> 10;
	Color k = {min(max(at[0] + e, 0), WHITE), min(max(at[1] + e, 0), WHITE), min(max(at[2] + e, 0), WHITE)};
	return k;
}

INLINE void sharpPatch(const Args &a, Patch &q, int x, int y)
{
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int c = 0; c < 5; c++)
			q.p[r][c] = sharpened(a, x + c - 1, y + r);
}
