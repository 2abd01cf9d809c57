// SPDX-License-Identifier: Apache-2.0
// The isp of docs/isp.md for a GPU; the § are of that page. Options choose the sensor and what is done (program.go):
//   MOSAIC    0 RGGB, 1 GRBG, 2 GBRG, 3 BGGR, 4 monochrome
//   BITS, PACKED, SHADING, MALVAR, MATRIX
//   PLANE     the samples behind §3 have been written to memory
//   TURN      if pictures are turned: 1 columns are reversed, 2 lines are, 4 lines and columns are exchanged; the sum of them
// and which kernels of it are compiled:
//   SAMPLES   those of §3, if there is PLANE, and of §11
//   KERNEL    PICTURE(size, format, kept, fast) makes an output, PAIR(format) one and a Half, COLORS(size, fast) the colours
//             for sharpening or turning
//
// The tests also run this source on a CPU.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static __device__ __forceinline__

#define THREADS_X 32
#define THREADS_Y 8
#define THREADS (THREADS_X * THREADS_Y)

#define MONO (MOSAIC == 4)
#define RED_X (MOSAIC & 1)      // modulo 2, of the red samples
#define RED_Y (MOSAIC >> 1 & 1)

#define LINEAR_MAX 16383
#define WHITE 4080

// What the statistics of §11 are gathered in.
struct Statistics {
	u64 sum[12][16][3];
	u64 focus;
	u32 count[12][16][3];
	u32 histogram[3][256];
	u32 clipped[3];
	u32 samples[3];
};

struct Defect {
	int x, y;
	int usable;
	int unused;
};

// A Conversion is that of §10.
struct Conversion {
	int c[3];
	int offset, shift;
};

// A Half is a picture of I420 with half the size of another, made with it.
struct Half {
	u8 *out;
	int stride, height;
	Conversion luma, cb, cr;
};

// Args are the only parameter of every kernel; args in args.go is the same, field by field. Arrays of four are by
// site: 2 (y & 1) + (x & 1).
struct Args {
	const u8 *in;
	u8 *out;
	u16 *samples;      // behind §3, if that has been written: read by pictures and statistics, written by black and known
	u16 *searched;     // written by found
	u16 *colors;       // R'G'B' and the luma of sharpening, turned
	const void *tone;  // by linear sample: bytes for RGB24, else 0 to 4080
	const u16 *shading; // of §4: two times rows lines of gains
	const u16 *rows;    // j << 8 | h
	const Defect *defects;
	Statistics *statistics;
	u64 reciprocal; // 2^40 / payload, rounded up

	int width, height, stride; // of the sensor's frame
	int there;                 // lines of it, or of samples, that may be read
	int begin, end;            // lines that the launch makes, of what it writes; begin is even
	int wide;                  // the lines of the sensor's frame are aligned to so many bytes: 16, 4; else 1
	int pitch;                 // of the lines of samples in memory, in samples
	int shadingRows;
	int mask;
	int black[4], light[4], m[4], n[4];              // m: with the shift of §2, if nothing comes in between
	int threshold, defectCount;
	int matrix[9];
	int sharpen;

	int outWidth, outHeight, outStride;
	int lineBytes, payload, packets, packetPitch, headerGap; // packets to a line; packetPitch 0: plain
	int vector;                                     // bytes that may be written at a time
	int stripRows;                                  // strips of a column, whose heights differ by a few lines at most
	Conversion luma, cb, cr, rgb;
	Half half;
};
