// SPDX-License-Identifier: Apache-2.0
// Motion: each pixel is compared with its own mean over the last frames. Tiles in which enough pixels differ become regions;
// those that stand side by side become one. For pixels: grey and output: results.
//
// parameters: difference (levels, 0 to 255), share (of a tile's pixels, 0 to 1), speed (of the mean, 0 to 1)
// numbers: moving (share of the frame's pixels), state_needed (bytes; if it is more than there are, nothing else is done)
// state: 16 bytes, 4 for each tile, and 2 for each pixel

#define TILE_W 32 // a block is a tile: what is counted for it needs no other block
#define TILE_H 8

struct State {
	unsigned frames; // since the beginning
	unsigned done;   // blocks of this frame
	unsigned moving; // pixels of this frame
	unsigned unused;
};

// A row of tiles by a thread: runs of moving tiles become regions.
static __device__ void regions_of(const Input &in, Results *results, unsigned *tiles, int row, float share)
{
	const int columns = (in.width + TILE_W - 1) / TILE_W, y = row * TILE_H, height = min(TILE_H, in.height - y);
	int from = -1;
	unsigned pixels = 0;
	for (int i = 0; i <= columns; i++) {
		const int width = min(TILE_W, in.width - i * TILE_W);
		const unsigned n = i < columns ? tiles[row * columns + i] : 0;
		if (i < columns && n > 0 && n >= share * (width * height)) {
			if (from < 0)
				from = i, pixels = 0;
			pixels += n;
		} else if (from >= 0) {
			const int right = min(i * TILE_W, in.width), w = right - from * TILE_W;
			add_region(results, from * TILE_W, y, w, height, 0, float(pixels) / (w * height));
			from = -1;
		}
	}
}

extern "C" __global__ void motion(const Input in, Results *results, const parameters p, void *memory)
{
	const int columns = gridDim.x, rows = gridDim.y, count = columns * rows;
	const size_t needed = sizeof(State) + 4 * (size_t)count + 2 * (size_t)in.width * in.height;
	const bool first = threadIdx.x == 0 && threadIdx.y == 0;
	if (needed > STATE_BYTES) { // every thread sees the same: none waits for another below
		if (first && blockIdx.x == 0 && blockIdx.y == 0)
			results->numbers.state_needed = needed;
		return;
	}
	State *state = (State *)memory;
	unsigned *tiles = (unsigned *)(state + 1);
	unsigned short *means = (unsigned short *)(tiles + count);

	const int x = pixel_x(in), y = pixel_y();
	bool moves = false;
	if (x < in.width && y < in.height) {
		unsigned short *mean = means + (size_t)y * in.width + x; // 256 times the level
		const int level = in.pixels[(size_t)y * in.stride + x] * 256;
		const int difference = level - *mean;
		if (state->frames == 0) {
			*mean = level;
		} else {
			moves = abs(difference) > p.difference * 256;
			*mean += int(difference * p.speed);
		}
	}
	const int n = __syncthreads_count(moves);

	__shared__ bool last; // the block that is done last sees what all others have counted
	if (first) {
		tiles[blockIdx.y * columns + blockIdx.x] = n;
		atomicAdd(&state->moving, (unsigned)n);
		__threadfence();
		last = atomicAdd(&state->done, 1u) == (unsigned)count - 1;
	}
	__syncthreads();
	if (!last)
		return;
	__threadfence();
	for (int row = threadIdx.y * blockDim.x + threadIdx.x; row < rows; row += blockDim.x * blockDim.y)
		regions_of(in, results, tiles, row, p.share);
	if (first) {
		results->numbers.moving = float(state->moving) / ((float)in.width * in.height);
		state->moving = state->done = 0;
		state->frames++;
	}
}
