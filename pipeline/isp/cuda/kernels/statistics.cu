// SPDX-License-Identifier: Apache-2.0
// §11: a block for each zone. Threads look at the quads of the zone, and add up in registers what they can.

#ifdef SAMPLES
// Sums are kept in halves, since only additions of 32 bits are fast.
struct Gathered {
	u32 histogram[3][256];
	u32 low[3], high[3];   // of 16 bits
	u32 focusLow, focusHigh; // of 20 bits
	u32 count[3], clipped[3], samples[3];
};

INLINE void forget(Gathered &g)
{
	u32 *p = (u32 *)&g;
	for (u32 i = threadIdx.y * THREADS_X + threadIdx.x; i < sizeof(g) / 4; i += THREADS)
		p[i] = 0;
}

INLINE int colorOf(int x, int y)
{
	if (MONO || (x ^ y ^ RED_X ^ RED_Y) & 1)
		return 1;
	return (y & 1) == RED_Y ? 0 : 2;
}

INLINE void gather(const Args &a, Gathered &g)
{
	const int x0 = (blockIdx.x * a.width + 15) / 16, x1 = ((blockIdx.x + 1) * a.width + 15) / 16;
	const int y0 = (blockIdx.y * a.height + 11) / 12, y1 = ((blockIdx.y + 1) * a.height + 11) / 12;
	u32 sum[3] = {}, count[3] = {}, clipped[3] = {}, samples[3] = {};
	u64 focus = 0;
	for (int cy = (y0 & ~3) + 4 * (int)threadIdx.y; cy < y1; cy += 4 * THREADS_Y)
		for (int cx = (x0 & ~3) + 4 * (int)threadIdx.x; cx < x1; cx += 4 * THREADS_X) {
			u32 v[4], next[4];
#pragma unroll
			for (int i = 0; i < 4; i++) { // all before the first is used
				v[i] = even(a, cx + (i & 1), cy + (i >> 1));
				next[i] = even(a, cx + (i & 1) + 2, cy + (i >> 1));
			}
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const int x = cx + (i & 1), y = cy + (i >> 1), color = colorOf(i & 1, i >> 1);
				if (x < x0 || x >= x1 || y < y0 || y >= y1)
					continue;
				const int d = (int)(next[i] >> 4) - (int)(v[i] >> 4);
				const bool below = v[i] < (u32)a.light[i];
				focus += (u32)(d * d);
				atomicAdd(&g.histogram[color][v[i] >> 8], 1u);
				samples[color]++;
				clipped[color] += !below;
				count[color] += below;
				sum[color] += below ? v[i] : 0;
			}
		}
	for (int c = 0; c < 3; c++) {
		atomicAdd(&g.low[c], sum[c] & 0xffff);
		atomicAdd(&g.high[c], sum[c] >> 16);
		atomicAdd(&g.count[c], count[c]);
		atomicAdd(&g.clipped[c], clipped[c]);
		atomicAdd(&g.samples[c], samples[c]);
	}
	atomicAdd(&g.focusLow, (u32)focus & 0xfffff);
	atomicAdd(&g.focusHigh, (u32)(focus >> 20));
}

// The zone's own sums are nobody else's.
INLINE void report(const Gathered &g, Statistics &s)
{
	const u32 i = threadIdx.y * THREADS_X + threadIdx.x;
	for (int c = 0; c < 3; c++)
		if (g.histogram[c][i] > 0)
			atomicAdd(&s.histogram[c][i], g.histogram[c][i]);
	if (i < 3) {
		s.sum[blockIdx.y][blockIdx.x][i] = g.low[i] + ((u64)g.high[i] << 16);
		s.count[blockIdx.y][blockIdx.x][i] = g.count[i];
		atomicAdd(&s.clipped[i], g.clipped[i]);
		atomicAdd(&s.samples[i], g.samples[i]);
	}
	if (i == 0)
		atomicAdd(&s.focus, g.focusLow + ((u64)g.focusHigh << 20));
}

extern "C" __global__ void __launch_bounds__(THREADS) statistics(const Args a)
{
	__shared__ Gathered g;
	forget(g);
	__syncthreads();
	gather(a, g);
	__syncthreads();
	report(g, *a.statistics);
}
#endif
