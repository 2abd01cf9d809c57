// SPDX-License-Identifier: Apache-2.0

// Package isp makes pictures from the frames of a sensor. One pass over the frame does black level, defects, lens
// shading, white balance, demosaic, colour matrix, tone curve, sharpening and Y'CbCr, in integer arithmetic that
// docs/isp.md specifies bit by bit.
//
// A pass cuts the frame into horizontal bands, which persistent workers take one by one. The result does not depend on
// the number of workers. Within a band, a step produces a line when a later step asks for it, and keeps it in a ring of
// lines as long as it may be asked for again (band.go). The work on one line is a kernel: a plain Go function in
// kernels.go, which is the definition, and on amd64 and arm64 a twin of it in vector instructions.
package isp
