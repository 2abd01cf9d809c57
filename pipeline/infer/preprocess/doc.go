// SPDX-License-Identifier: Apache-2.0

// Package preprocess makes the input tensor of a model out of a frame: crop, scale, letterbox, colour, normalise and layout
// in one pass, on the CPU (Preprocessor) or by one kernel on a GPU (Kernel). Both compute the same bits.
//
// A crop of w×h pixels is scaled to W×H, which is the tensor's size or, with Letterbox, the largest size in the tensor with
// the crop's aspect ratio: one side is the tensor's, the other is rounded to whole pixels, a half up, and is at least 1. The
// rest has the value of Fill; half of it, rounded down, is above and to the left of the picture.
//
// Pixel x of the picture is at c = (x + ½)·w/W − ½ of the crop, between the crop's pixels ⌊c⌋ and ⌊c⌋+1. Positions outside of
// the crop are moved to its edge. This is OpenCV's INTER_LINEAR: when a picture becomes much smaller, pixels between are not
// used. The weight of the second pixel is c − ⌊c⌋: horizontally it is p, rounded to a multiple of 2^-14, a half up, and
// vertically q, rounded to float32. Positions are computed in integers, without error. A pixel of Y'CbCr has the chroma of its
// group of 2×1 (UYVY) or 2×2 pixels (NV12, I420), as in OpenCV's cvtColor. A scaled sample, times 2^14, is
//
//	a = 2^14·((1−p)·s00 + p·s01)
//	b = 2^14·((1−p)·s10 + p·s11)
//	v = a + (b−a)·q
//
// with integers a of the upper and b of the lower line, and v in float32 with each operation rounded. From the three samples
// of a pixel, a value of the tensor is, also in float32 and in this order,
//
//	t = min(max(((k0·v0 + k1·v1) + k2·v2) + k3, low), high)
//
// The constants are float32s of what float64 makes of the conversion to R'G'B' of full range, or to luma for a tensor with one
// channel, and of (sample − Mean)·Scale; low and high are the values of the samples 0 and 255. The conversion is that of the
// frames' colorimetry; without one, samples have the full range, and luma is that of ITU-R BT.601. Float16 is t rounded to
// nearest, ties to even; Uint8 is t limited to 0 and 255, and rounded likewise.
//
// Rounding p moves a scaled sample by at most 255·2^-15 = 0.008, hence colours from Y'CbCr of limited range, which is
// stretched, by at most 0.03; float32 adds less than 0.001. OpenCV's own weights have 11 bits and it rounds each step to 8
// bits: its samples are within 1 of these, and within 2 after cvtColor, except that it limits colours outside of R'G'B'
// before it scales.
package preprocess
