// SPDX-License-Identifier: Apache-2.0

// Package codec encodes pictures: as JPEG on a GPU or, with libjpeg-turbo, on the CPU, and as H.264. (Without
// libjpeg-turbo, package rtp encodes JPEG with image/jpeg.)
//
// The H.264 encoder is openh264, loaded at run time and called through the table of its C interface (wels/codec_api.h),
// without cgo. The streams are meant for live viewing: constrained baseline, one reference picture, no B pictures and
// no skipped frames, so that each picture can leave as soon as it is encoded.
package codec
