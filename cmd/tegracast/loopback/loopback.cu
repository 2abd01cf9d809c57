// SPDX-License-Identifier: Apache-2.0
// What fills and compares the surfaces of the validation run, on the GPU. Sizes of surfaces are multiples of 4 KiB.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Args {
	u32 *src, *dst;
	u64 *wrong; // the complement of the first wrong byte's number; 0: none is
	u64 words;  // of a surface
	u64 size;   // bytes that are copied; those behind them nobody may write
	u64 seed;
};

static __device__ __forceinline__ u32 number(u64 seed, u64 i)
{
	u64 v = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
	v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
	return (u32)(v ^ (v >> 31));
}

static __device__ __forceinline__ u64 begin() { return ((u64)blockIdx.x * 8 + threadIdx.y) * 32 + threadIdx.x; }

// Numbers that differ with every seed, and in the destination what differs from them in every bit.
extern "C" __global__ void fill(const Args a)
{
	for (u64 i = begin(); i < a.words; i += (u64)gridDim.x * 256) {
		const u32 v = number(a.seed, i);
		a.src[i] = v;
		a.dst[i] = ~v;
	}
}

// Compares with what was filled in, and not with what is in the source now: that must not have changed either.
extern "C" __global__ void compare(const Args a)
{
	for (u64 i = begin(); i < a.words; i += (u64)gridDim.x * 256) {
		const u32 v = number(a.seed, i), src = a.src[i], dst = a.dst[i];
		for (u32 k = 0; k < 4; k++) {
			const u8 sent = v >> 8 * k, want = 4 * i + k < a.size ? sent : ~sent;
			if ((u8)(src >> 8 * k) != sent || (u8)(dst >> 8 * k) != want) {
				atomicMax(a.wrong, ~(4 * i + k));
				break;
			}
		}
	}
}
