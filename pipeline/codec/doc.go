// SPDX-License-Identifier: Apache-2.0

// Package codec encodes pictures: as JPEG on a GPU and, by libjpeg-turbo, on the CPU, and as H.264. (Without
// that library JPEG on the CPU is image/jpeg, in package rtp.)
//
// H.264's encoder is openh264, opened at run time and called through the table of its C interface (wels/codec_api.h), without
// cgo. It makes streams for people who look now: constrained baseline, one reference, no B pictures, no frame skipped, so
// that each picture leaves as soon as it is encoded.
package codec
