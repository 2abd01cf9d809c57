/* What the kernels need to be C++ for a CPU. Blocks run one after the other, and a phase thread after thread. */
#include <stddef.h>
#include <stdint.h>

struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct dim { unsigned x, y, z; };

static dim threadIdx, blockIdx, gridDim;

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)
#define EACH_THREAD(phase)                                                                       \
	do {                                                                                     \
		for (unsigned ty_ = 0; ty_ < THREADS_Y; ty_++)                                   \
			for (unsigned tx_ = 0; tx_ < THREADS_X; tx_++) {                         \
				threadIdx = {tx_, ty_, 0};                                       \
				phase;                                                           \
			}                                                                        \
	} while (0)

template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return b < a ? a : b; }
template <typename T> static inline void atomicAdd(T *p, T v) { *p += v; }
