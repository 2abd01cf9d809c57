// SPDX-License-Identifier: Apache-2.0

// Package codec encodes pictures: as JPEG on a GPU or, with libjpeg-turbo, on the CPU, and as H.264. (Without
// libjpeg-turbo, package rtp encodes JPEG with image/jpeg.)
//
// The H.264 encoder is openh264, loaded at run time and called through the table of its C interface (wels/codec_api.h),
// without cgo. The streams are meant for live viewing: constrained baseline, one reference picture, no B pictures and
// no skipped frames, so that each picture can leave as soon as it is encoded.
//
// A picture cannot be encoded band by band while its lines arrive. openh264 begins by copying all of it, and gives out no
// slice before the last one is encoded (WelsEncoderEncodeExt in codec/encoder/core/src/encoder_ext.cpp). If each band had
// an encoder of its own, the decoder's pictures would drift from the encoder's: motion vectors reach beyond the edge of
// the picture (SetMvWithinIntegerMvRange in svc_motion_estimate.h), and those of skipped blocks further
// (WelsMdPSkipEnc in svc_base_layer_md.cpp), where the encoder would repeat its last line, but the decoder has the next
// band. No option keeps them inside: their range follows from the level, and is never less than 64 pixels
// (GetMvMvdRange in encoder_ext.cpp).
package codec
