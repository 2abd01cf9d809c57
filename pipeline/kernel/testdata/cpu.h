// SPDX-License-Identifier: Apache-2.0
/* What users' kernels need to be C++ for a CPU. The threads of a block are coroutines: each runs until it waits for the
 * others, or ends. Blocks run one after the other. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

struct dim { unsigned x, y, z; };

static dim threadIdx, blockIdx, gridDim, blockDim = {32, 8, 1};

#define __device__
#define __global__
#define __shared__ static

namespace cpu {
enum { THREADS = 256, STACK = 64 << 10 };
static ucontext_t block, thread[THREADS];
static char stack[THREADS][STACK];
static bool ended[THREADS];
static int current, counted, count;

/* Lets the other threads come as far as this one. */
static inline void wait()
{
	const int i = current;
	const dim own = threadIdx;
	swapcontext(&thread[i], &block);
	current = i;
	threadIdx = own;
}
}

static inline void __syncthreads() { cpu::wait(); }
static inline int __syncthreads_count(int is)
{
	cpu::counted += is != 0;
	cpu::wait(); /* run.h puts the sum into count when all have come */
	return cpu::count;
}
static inline void __threadfence() {}

template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return b < a ? a : b; }
template <typename T> static inline T atomicAdd(T *p, T v) { T old = *p; *p += v; return old; }
