// SPDX-License-Identifier: Apache-2.0

// Package capture connects the hardware to the flow of frames.
//
// It has four sources: an FPGACamera emits frames that an FPGA writes by DMA into pinned slots, and recovers from
// faults (docs/faults.md); a V4L2Camera emits those of a video device of the kernel; a Replay plays a file as a camera
// would; a Recording plays recordings. It has one output: an
// FPGAOutput sends processed frames back to the FPGA. Cameras and outputs share a Card, which is one FPGA; each has its
// own DMA channel.
//
// A Clock maps the FPGA's timestamps to this machine's time. A Matcher finds the frame that belongs to an edge of a
// GPIO line.
package capture
