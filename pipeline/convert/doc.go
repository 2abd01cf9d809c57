// SPDX-License-Identifier: Apache-2.0

// Package convert makes pictures of pictures: with other pixels and colours, at full, half or quarter size. It is the
// counterpart of package isp for cameras that deliver pictures, among them those whose frames are JPEG files.
//
// A smaller picture consists of the means of 2x2 or 4x4 pixels. Chroma samples are taken to lie between the pixels that
// they belong to, and are halved by means and doubled by repetition. Colours are converted by the definitions of ITU-R
// BT.601 and BT.709 and of JFIF, in fixed point, rounded; R'G'B' is taken to have the primaries of the picture.
package convert
