// SPDX-License-Identifier: Apache-2.0
// Makes a tensor out of a frame: a thread for each pixel of the tensor. doc.go has the arithmetic, in which no operation is
// fused. FORMAT and TYPE are defined by the compiler's options, as are CHANNELS, NHWC and REVERSED, which is 1 for samples in the order B, G, R.

enum { GREY, RGB24, UYVY, NV12, I420 };
enum { FLOAT32 = 1, UINT8 = 2, FLOAT16 = 10 }; // the numbers of tensor.Type

typedef unsigned char byte;

struct Args {
	const byte *in;
	void *out;
	int stride, plane;              // bytes of a line, and of the first plane
	int cropX, cropY, cropW, cropH; // in the frame
	int left, top, width, height;   // of the picture in the tensor
	int outWidth, outHeight;        // of the tensor
	float factor[3][4], low[3], high[3];
	float fill[3];
};

// A position is between two pixels of the crop.
struct Position {
	int first, second, part, of;
};

static __device__ Position position(int i, int side, int n)
{
	const int of = 2 * n, at = (2 * i + 1) * side - n;
	if (at < 0)
		return {0, 0, 0, of};
	if (at / of >= side - 1)
		return {side - 1, side - 1, 0, of};
	return {at / of, at / of + 1, at % of, of};
}

// Samples of a pixel: R, G and B, or Y, Cb and Cr, or three times Y.
struct Samples {
	int v[3];
};

static __device__ Samples samples(const Args &a, int x, int y)
{
	const byte *line = a.in + (size_t)y * a.stride;
	const byte *second = a.in + a.plane;
	switch (FORMAT) {
	case RGB24:
		return {line[3 * x + 2 * REVERSED], line[3 * x + 1], line[3 * x + 2 - 2 * REVERSED]};
	case UYVY:
		return {line[2 * x + 1], line[x / 2 * 4], line[x / 2 * 4 + 2]};
	case NV12:
		second += (size_t)(y / 2) * a.stride + x / 2 * 2;
		return {line[x], second[0], second[1]};
	case I420:
		second += (size_t)(y / 2) * (a.stride / 2) + x / 2;
		return {line[x], second[0], second[a.plane / 4]};
	}
	return {line[x], line[x], line[x]};
}

union Bits {
	float f;
	unsigned u;
};

// Rounded to nearest, ties to even, for magnitudes that float16 has.
static __device__ unsigned short half_of(float v)
{
	Bits b;
	b.f = v;
	const unsigned sign = b.u >> 16 & 0x8000;
	b.u &= 0x7fffffff;
	if (b.u >= 0x38800000)
		return sign | (b.u - 0x38000000 + 0xfff + (b.u >> 13 & 1)) >> 13;
	b.f += 0.5f; // rounds what is subnormal
	return sign | (b.u - 0x3f000000);
}

static __device__ byte byte_of(float v)
{
	Bits b;
	b.f = v + 8388608.0f; // 2^23: rounds to whole numbers
	return b.u;
}

static __device__ void store(const Args &a, int x, int y, int channel, float v)
{
	const size_t at = NHWC ? ((size_t)y * a.outWidth + x) * CHANNELS + channel : ((size_t)channel * a.outHeight + y) * a.outWidth + x;
	if (TYPE == FLOAT32)
		((float *)a.out)[at] = v;
	else if (TYPE == FLOAT16)
		((unsigned short *)a.out)[at] = half_of(v);
	else
		((byte *)a.out)[at] = byte_of(v);
}

extern "C" __global__ void preprocess(const Args a)
{
	const int outX = blockIdx.x * 32 + threadIdx.x, outY = blockIdx.y * 8 + threadIdx.y;
	if (outX >= a.outWidth || outY >= a.outHeight)
		return;
	const int i = outX - a.left, j = outY - a.top;
	if (i < 0 || j < 0 || i >= a.width || j >= a.height) {
		for (int c = 0; c < CHANNELS; c++)
			store(a, outX, outY, c, a.fill[c]);
		return;
	}
	const Position x = position(i, a.cropW, a.width), y = position(j, a.cropH, a.height);
	const int right = ((x.part << 15) + x.of) / (2 * x.of), left = (1 << 14) - right;
	const float lower = (float)y.part / (float)y.of;
	const Samples s00 = samples(a, a.cropX + x.first, a.cropY + y.first), s01 = samples(a, a.cropX + x.second, a.cropY + y.first);
	const Samples s10 = samples(a, a.cropX + x.first, a.cropY + y.second), s11 = samples(a, a.cropX + x.second, a.cropY + y.second);
	float v[3];
	for (int c = 0; c < 3; c++) {
		const int above = s00.v[c] * left + s01.v[c] * right, below = s10.v[c] * left + s11.v[c] * right;
		v[c] = (float)above + (float)(below - above) * lower;
	}
	for (int c = 0; c < CHANNELS; c++) {
		const float *k = a.factor[c];
		const float t = ((k[0] * v[0] + k[1] * v[1]) + k[2] * v[2]) + k[3];
		store(a, outX, outY, c, min(max(t, a.low[c]), a.high[c]));
	}
}
