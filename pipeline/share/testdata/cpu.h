// SPDX-License-Identifier: Apache-2.0
/* What the kernel of gpu_test.go needs to be C++ for a CPU. Threads and blocks run one after the other. */
struct dim { unsigned x, y, z; };

static dim threadIdx, blockIdx;

#define __global__

static unsigned atomicAdd(unsigned *p, unsigned v) { return *p += v, *p - v; }
