// SPDX-License-Identifier: Apache-2.0
// Focus aid: where the picture is sharp, its edges are painted red. For pixels: uyvy (the default) and output: frame.
//
// parameters: threshold (difference of luma between neighbours, levels)

// Luma, with the frame's edge going on for ever.
static __device__ int luma(const Input &in, int x, int y)
{
	x = min(max(x, 0), in.width - 1);
	y = min(max(y, 0), in.height - 1);
	return in.pixels[(size_t)y * in.stride + 2 * x + 1];
}

static __device__ bool sharp(const Input &in, int x, int y, float threshold)
{
	const int dx = luma(in, x + 1, y) - luma(in, x - 1, y), dy = luma(in, x, y + 1) - luma(in, x, y - 1);
	return abs(dx) + abs(dy) > threshold;
}

// A thread makes two pixels, which share their colour.
extern "C" __global__ void focus(const Input in, Output out, const parameters p, void *)
{
	const int x = pixel_x(in), y = pixel_y();
	if (x >= in.width || y >= in.height)
		return;
	const unsigned char *from = in.pixels + (size_t)y * in.stride + 2 * x;
	unsigned char *to = out.pixels + (size_t)y * out.stride + 2 * x;
	const bool left = sharp(in, x, y, p.threshold), right = sharp(in, x + 1, y, p.threshold);
	const bool red = left || right;
	to[0] = red ? 102 : from[0]; // Cb, Y, Cr of BT.709's red
	to[1] = left ? 63 : from[1];
	to[2] = red ? 240 : from[2];
	to[3] = right ? 63 : from[3];
}
