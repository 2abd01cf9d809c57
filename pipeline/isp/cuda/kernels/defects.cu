// SPDX-License-Identifier: Apache-2.0
// Samples written to memory, with defects repaired; §2, §3.

#define STEP (MONO ? 1 : 2) // to the next sample of the same colour

#if defined SAMPLES && defined PLANE
// Four samples less the black level a thread.
INLINE void keepDark(const Args &a)
{
	int x = 4 * (blockIdx.x * THREADS_X + threadIdx.x), y = a.begin + blockIdx.y * THREADS_Y + threadIdx.y;
	if (y >= a.end)
		return;
	for (int i = 0; i < 4 && x + i < a.width; i++)
		a.samples[(size_t)y * a.pitch + x + i] = dark(a, raw(a, x + i, y), site(i, y));
}

extern "C" __global__ void black(const Args a) { keepDark(a); }

// The mean of the usable pair around a sample whose two differ least.
INLINE u32 repaired(const u16 *samples, const Args &a, int x, int y, int usable)
{
	const int dx[4] = {STEP, 0, STEP, -STEP}, dy[4] = {0, STEP, STEP, STEP};
	u32 best = 1 << 16, value = kept(samples, a, x, y);
	for (int i = 0; i < 4; i++) {
		if (!(usable >> i & 1))
			continue;
		u32 p = kept(samples, a, reflect(x - dx[i], a.width), reflect(y - dy[i], a.height));
		u32 q = kept(samples, a, reflect(x + dx[i], a.width), reflect(y + dy[i], a.height));
		u32 d = max(p, q) - min(p, q);
		if (d < best) {
			best = d;
			value = (p + q + 1) >> 1;
		}
	}
	return value;
}

// A known defect a thread, in place: no usable pair has a sample that another thread writes.
INLINE void repairKnown(const Args &a)
{
	int i = blockIdx.x * THREADS + threadIdx.y * THREADS_X + threadIdx.x;
	if (i >= a.defectCount)
		return;
	Defect d = a.defects[i];
	a.samples[(size_t)d.y * a.pitch + d.x] = repaired(a.samples, a, d.x, d.y, d.usable);
}

extern "C" __global__ void known(const Args a) { repairKnown(a); }

// A sample a thread: it is a defect if it lies beyond all its neighbours.
INLINE void search(const Args &a)
{
	int x = blockIdx.x * THREADS_X + threadIdx.x, y = a.begin + blockIdx.y * THREADS_Y + threadIdx.y;
	if (x >= a.width || y >= a.end)
		return;
	u32 lowest = 65535, highest = 0, c = kept(a.samples, a, x, y);
	for (int i = 0; i < 9; i++) {
		if (i == 4)
			continue;
		u32 v = kept(a.samples, a, reflect(x + (i % 3 - 1) * STEP, a.width), reflect(y + (i / 3 - 1) * STEP, a.height));
		lowest = min(lowest, v);
		highest = max(highest, v);
	}
	if (c > highest + a.threshold || c + a.threshold < lowest)
		c = repaired(a.samples, a, x, y, 15);
	a.searched[(size_t)y * a.pitch + x] = c;
}

extern "C" __global__ void found(const Args a) { search(a); }
#endif
