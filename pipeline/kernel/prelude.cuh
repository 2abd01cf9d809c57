// SPDX-License-Identifier: Apache-2.0
// What stands in front of every kernel; docs/kernels/README.md. Layouts are those of arguments.go.

enum PixelFormat { UYVY, UYVP, RGB24, GREY, I420, NV12, SENSOR };

struct Input {
	const unsigned char *pixels;
	int width, height, stride; // pixels, lines, bytes from line to line
	int format;                // PixelFormat
	int group;                 // pixels that a thread is for
	int bits;                  // of a sensor's samples; 0: a picture
	unsigned long long sequence; // a gap is a lost frame
};

struct Output {
	unsigned char *pixels;
	int width, height, stride;
	int format;
};

struct Region {
	int x, y, width, height; // pixels
	int label;               // below 0: none
	float score;             // 0 to 1
};

#define MAX_REGIONS 256

struct Results {
	unsigned regions; // how many were found; those from MAX_REGIONS on are lost
	Region region[MAX_REGIONS];
	struct numbers numbers;
	unsigned bins[BINS > 0 ? BINS : 1];
};

// The first pixel that the thread is for. It lies outside the frame for some threads.
static __device__ inline int pixel_x(const Input &in) { return (blockIdx.x * blockDim.x + threadIdx.x) * in.group; }
static __device__ inline int pixel_y() { return blockIdx.y * blockDim.y + threadIdx.y; }

static __device__ inline void add_region(Results *r, int x, int y, int width, int height, int label, float score)
{
	const unsigned n = atomicAdd(&r->regions, 1u);
	if (n < MAX_REGIONS)
		r->region[n] = Region{x, y, width, height, label, score};
}

template <typename A, typename B> struct SameType { enum { yes = 0 }; };
template <typename A> struct SameType<A, A> { enum { yes = 1 }; };
