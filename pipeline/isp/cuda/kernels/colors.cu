// Three colours a pixel; §6 to §9. A lane makes LANE pixels of two lines at a time, and the pixel to the left of each, which
// 4:2:2 looks at; what nobody looks at the compiler leaves out.

#define LANE 8
#define LEAD 4             // samples of a line in front of its own that a lane looks at
#define ACROSS (LEAD + LANE + 2)
#define BESIDE (MONO ? 0 : HALO) // lines of samples that it looks at above and below
#ifdef MALVAR
#define HALO 2
#else
#define HALO 1
#endif

struct Color { int r, g, b; };

struct Patch { Color p[2][1 + LANE]; };

INLINE int clip(int v) { return min(max(v, 0), LINEAR_MAX); }

// ACROSS samples from x - LEAD on, two to a word.
struct Words { u32 v[ACROSS / 2]; };

INLINE u32 both(u32 first, u32 second) { return first | second << 16; }

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
	const uint4 w = *(const uint4 *)at;
	p.v[0] = x > 0 ? *(const u32 *)(at - 4) : 0;
	p.v[1] = x > 0 ? *(const u32 *)(at - 2) : 0;
	p.v[2] = w.x;
	p.v[3] = w.y;
	p.v[4] = w.z;
	p.v[5] = w.w;
	p.v[6] = x + LANE < width ? *(const u32 *)(at + LANE) : 0;
	mirrorEnds(p, x, width);
	return p;
}

#ifdef SHADING
INLINE Words gainsOf(const u16 *line, int x, int width)
{
	if (x + LANE <= width && (x + LANE == width || x + LANE + 2 <= width))
		return wordsOf(line, x, width);
	Words p;
#pragma unroll
	for (int i = 0; i < ACROSS / 2; i++)
		p.v[i] = both(line[reflect(x - LEAD + 2 * i, width)], line[reflect(x - LEAD + 1 + 2 * i, width)]);
	return p;
}
#endif

// What a lane needs of a line: as it comes, or as it was kept behind §3.
INLINE Words fetch(const Args &a, int x, int y)
{
	y = reflect(y, a.height);
	const bool inside = x + LANE == a.width || x + LANE + 2 <= a.width;
#ifdef PLANE
	if (inside)
		return wordsOf(a.samples + (size_t)y * a.pitch, x, a.width);
#elif !PACKED && BITS == 8
	if (inside && a.wide == 16) {
		const u8 *at = a.in + (size_t)y * a.stride + x;
		const uint2 w = *(const uint2 *)at;
		const u32 before = x > 0 ? *(const u32 *)(at - 4) : 0, behind = x + LANE < a.width ? *(const u16 *)(at + LANE) : 0;
		Words p;
		p.v[0] = both(before & 255, before >> 8 & 255);
		p.v[1] = both(before >> 16 & 255, before >> 24);
		p.v[2] = both(w.x & 255, w.x >> 8 & 255);
		p.v[3] = both(w.x >> 16 & 255, w.x >> 24);
		p.v[4] = both(w.y & 255, w.y >> 8 & 255);
		p.v[5] = both(w.y >> 16 & 255, w.y >> 24);
		p.v[6] = both(behind & 255, behind >> 8);
		mirrorEnds(p, x, a.width);
		return p;
	}
#elif !PACKED
	if (inside && a.wide == 16)
		return wordsOf((const u16 *)(a.in + (size_t)y * a.stride), x, a.width);
#endif
	Words p;
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

// Linear samples of line y, whose parity is that of i; §2, §4, §5.
INLINE void linearise(const Args &a, int (&s)[ACROSS], const Words &p, int x, int y, int i)
{
#ifdef SHADING
	const GainLines g = gainLines(a, reflect(y, a.height));
	const Words upper = gainsOf(g.upper, x, a.width), lower = gainsOf(g.lower, x, a.width);
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
		for (int c = 0; c < 1 + LANE; c++)
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
		for (int c = 0; c < 1 + LANE; c++)
			q.p[r][c] = sharpened(a, x + c - 1, y + r);
}
