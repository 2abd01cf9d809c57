// SPDX-License-Identifier: Apache-2.0
// Kernels of gpu-bench: what they do is only to be measured beside.

struct Args {
	const uint4 *in;
	uint4 *out;
	unsigned long long groups; // copied: 64 words in, 96 out each
	unsigned long long nanoseconds;
	unsigned turns;
};

// Keeps the stream for a while, so that what comes behind it is enqueued before the first of it begins.
extern "C" __global__ void hold(const Args a)
{
#ifdef __CUDA_ARCH__
	unsigned long long begin, now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < a.nanoseconds);
#endif
}

// Reads and writes what a frame of 16 bits and its picture of 24 have, every word once.
extern "C" __global__ void pass(const Args a)
{
	const unsigned long long warps = (unsigned long long)gridDim.x * 8, lane = threadIdx.x;
	for (unsigned long long g = blockIdx.x * 8 + threadIdx.y; g < a.groups; g += warps) {
		const uint4 v = a.in[64 * g + lane], w = a.in[64 * g + 32 + lane];
		uint4 x;
		x.x = v.x ^ w.x;
		x.y = v.y ^ w.y;
		x.z = v.z ^ w.z;
		x.w = v.w ^ w.w;
		a.out[96 * g + lane] = v;
		a.out[96 * g + 32 + lane] = w;
		a.out[96 * g + 64 + lane] = x;
	}
}

// Copies a.groups words, four a thread.
extern "C" __global__ void copy(const Args a)
{
	const unsigned threads = 32 * 8;
	const unsigned long long first = (unsigned long long)blockIdx.x * 4 * threads + threadIdx.y * 32 + threadIdx.x;
	uint4 v[4];
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (first + i * threads < a.groups)
			v[i] = a.in[first + i * threads];
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (first + i * threads < a.groups)
			a.out[first + i * threads] = v[i];
}

// A turn of a thread is 8 multiplications with an addition and 16 additions and logical operations, in eight chains.
extern "C" __global__ void integers(const Args a)
{
	unsigned v[8], k = threadIdx.x | 1;
#pragma unroll
	for (int i = 0; i < 8; i++)
		v[i] = threadIdx.y + i + blockIdx.x;
	for (unsigned n = 0; n < a.turns; n++)
#pragma unroll
		for (int i = 0; i < 8; i++) {
			v[i] = v[i] * k + n;
			v[i] = (v[i] ^ k) + v[(i + 1) % 8];
		}
	unsigned sum = 0;
#pragma unroll
	for (int i = 0; i < 8; i++)
		sum ^= v[i];
	if (sum == a.nanoseconds) // so that nothing of it can be left out
		a.out[0].x = sum;
}
