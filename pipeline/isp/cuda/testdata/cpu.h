// SPDX-License-Identifier: Apache-2.0
/* What the kernels need to be C++ for a CPU. Blocks run one after the other; a block's threads take turns, each until it
 * waits for others. */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct dim { unsigned x, y, z; };

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __ldg(p) (*(p))
#define __CUDACC_VER_MAJOR__ 0
#define __funnelshift_r(low, high, n) ((unsigned)(((uint64_t)(high) << 32 | (low)) >> (n)))

template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return b < a ? a : b; }
template <typename T> static inline void atomicAdd(T *p, T v) { *p += v; }
template <typename T> static inline void atomicMax(T *p, T v) { *p = max(*p, v); }

static dim threadIdx, blockIdx, gridDim;

enum { WARP = 32, WARPS = 8, STACK = 64 << 10 };

/* A barrier opens when all that live have come. */
struct barrier {
	int alive, here;
	unsigned opened;
};

static struct {
	jmp_buf context;
	dim index;
	bool ended;
	char *stack;
} threads_[WARP * WARPS];

static jmp_buf scheduler_;
static barrier warps_[WARPS], block_;
static int current_;

static void open_if_all(barrier &b)
{
	if (b.here > 0 && b.here == b.alive) {
		b.here = 0;
		b.opened++;
	}
}

static void give_way()
{
	if (_setjmp(threads_[current_].context) == 0)
		_longjmp(scheduler_, 1);
}

static void wait_at(barrier &b)
{
	const unsigned before = b.opened;
	b.here++;
	open_if_all(b);
	while (b.opened == before)
		give_way();
}

static void __syncwarp() { wait_at(warps_[current_ / WARP]); }
static void __syncthreads() { wait_at(block_); }

static unsigned exchanged_[WARP * WARPS];

/* Of a warp whose lanes all take part. */
static unsigned exchange(unsigned v, int from)
{
	exchanged_[current_] = v;
	__syncwarp();
	const unsigned got = from < 0 || from >= WARP ? v : exchanged_[current_ / WARP * WARP + from];
	__syncwarp();
	return got;
}

#define __shfl_sync(mask, v, lane) exchange(v, lane)
#define __shfl_up_sync(mask, v, by) exchange(v, current_ % WARP - (by))
#define __shfl_down_sync(mask, v, by) exchange(v, current_ % WARP + (by))

static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
	const uint64_t bytes = (uint64_t)b << 32 | a;
	unsigned v = 0;
	for (int i = 0; i < 4; i++)
		v |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
	return v;
}
