// SPDX-License-Identifier: Apache-2.0

// Package preprocess makes the input tensor of a model out of a frame: crop, scale, letterbox, colour, normalise and
// layout in one pass, on the CPU (Preprocessor) or by one kernel on a GPU (Kernel). Both compute the same bits.
//
// A crop of w×h pixels is scaled to W×H, which is the tensor's size or, with Letterbox, the largest that fits into it with
// the crop's aspect ratio: one side is the tensor's, the other is rounded to the nearest pixel, a half up, and is at least 1.
// The rest has the value Fill; above and to the left of the picture is half of it, rounded down.
//
// Pixel x of the picture is at c = (x + ½)·w/W − ½ of the crop, between its pixels ⌊c⌋ and ⌊c⌋+1; positions outside of the
// crop are moved to its edge. This is OpenCV's INTER_LINEAR, without a filter for sizes that are smaller by more than half.
// The weight of ⌊c⌋+1 is p = c − ⌊c⌋, horizontally rounded to 14 bits, a half up, and vertically to float32. Coordinates are
// computed from integers, without error. With all samples of Y'CbCr having the chroma of their 2×1 (UYVY) or 2×2 (NV12, I420)
// pixels, what cvtColor takes as well, the scaled samples are, exactly and then in float32, each operation rounded,
//
//	a = 2^14·((1−p)·s00 + p·s01)   b = 2^14·((1−p)·s10 + p·s11)   v = a + (b−a)·q
//
// for the upper and the lower line, with q the vertical weight. A value of the tensor is, in float32 and in this order,
//
//	t = min(max(((k0·v0 + k1·v1) + k2·v2) + k3, low), high)
//
// where the float32 constants contain, for the frames' colorimetry and range, the conversion to R'G'B' from 0 to 255, or to
// luma for a tensor with one channel, and (sample − Mean)·Scale. Low and high are the values of the samples 0 and 255. Formats
// without a colorimetry have the full range, and the luma of R'G'B' is then that of ITU-R BT.601. Float16 is t rounded to
// nearest, ties to even; Uint8 is t limited to 0 and 255, and rounded likewise.
//
// The 14 bits move a sample by at most 255·2^-15 = 0.008 from real numbers, times the largest factors of the conversion
// (2.2) for Y'CbCr; float32 adds less than 0.001.
package preprocess
