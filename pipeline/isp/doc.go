// SPDX-License-Identifier: Apache-2.0

// Package isp makes pictures from a sensor's frames. In one pass over the frame it applies black level, defect
// correction, lens shading correction, white balance, demosaic, colour matrix, tone curve, sharpening and conversion to
// Y'CbCr, in integer arithmetic that docs/isp.md specifies exactly.
//
// A pass splits the frame into horizontal bands, which persistent workers take one by one. The result does not depend
// on the number of workers. Within a band, a step makes a line when a later step requests it, and keeps it in a ring of
// lines as long as it may be requested again (band.go). The work on one line is done by a kernel: a plain Go function
// in kernels.go, which is the definition, and an equivalent in vector instructions on amd64 and arm64.
package isp
