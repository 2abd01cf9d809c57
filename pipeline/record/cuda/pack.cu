// SPDX-License-Identifier: Apache-2.0
// Packs samples of BITS bits, 10 or 12, as pipeline/packing.go does for the CPU: a group of samples is as many bytes, with their upper
// bits, and one with their lower bits.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static __device__ __forceinline__

#define LOW (BITS - 8)   // lower bits of a sample
#define GROUP (8 / LOW)  // samples
#define BYTES (GROUP + 1)
#define CHUNK 16         // samples that a thread packs into whole words
#define OUT (BITS / 2)   // these

struct Args {
	const u16 *words; // aligned to 32 bytes, as packed is to 4
	u8 *packed;
	u32 *over;  // becomes 1 when a sample has more bits
	u64 groups;
};

// A byte of a group.
INLINE u32 byteOf(const u32 *s, int i)
{
	if (i < GROUP)
		return s[i] >> LOW & 0xff;
	u32 low = 0;
#pragma unroll
	for (int k = 0; k < GROUP; k++)
		low |= (s[k] & ((1 << LOW) - 1)) << LOW * k;
	return low;
}

INLINE u32 packChunk(const uint4 *from, u32 *to)
{
	const uint4 a = from[0], b = from[1];
	const u32 pair[CHUNK / 2] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
	u32 s[CHUNK], out[OUT] = {}, seen = 0;
#pragma unroll
	for (int i = 0; i < CHUNK; i++)
		seen |= s[i] = pair[i / 2] >> 16 * (i % 2) & 0xffff;
#pragma unroll
	for (int i = 0; i < 4 * OUT; i++)
		out[i / 4] |= byteOf(s + i / BYTES * GROUP, i % BYTES) << 8 * (i % 4);
#pragma unroll
	for (int i = 0; i < OUT; i++)
		to[i] = out[i];
	return seen;
}

INLINE u32 packGroup(const u16 *from, u8 *to)
{
	u32 s[GROUP], seen = 0;
#pragma unroll
	for (int i = 0; i < GROUP; i++)
		seen |= s[i] = from[i];
#pragma unroll
	for (int i = 0; i < BYTES; i++)
		to[i] = byteOf(s, i);
	return seen;
}

extern "C" __global__ void pack(const Args a)
{
	const u64 me = ((u64)blockIdx.x * 8 + threadIdx.y) * 32 + threadIdx.x, chunks = a.groups * GROUP / CHUNK;
	u32 seen = 0;
	for (u64 i = me; i < chunks; i += (u64)gridDim.x * 256)
		seen |= packChunk((const uint4 *)(a.words + i * CHUNK), (u32 *)a.packed + i * OUT);
	const u64 rest = chunks * CHUNK / GROUP + me; // a group for each thread: there are fewer than threads in a block
	if (rest < a.groups)
		seen |= packGroup(a.words + rest * GROUP, a.packed + rest * BYTES);
	if (seen >> BITS)
		*a.over = 1;
}
