// SPDX-License-Identifier: Apache-2.0

// Package fpga describes DMA engines at register level: the interfaces that drivers of such engines use, and what all FPGA
// designs for tegracast share, which are the control registers of the camera and the frame trailer (both documented in
// docs/fpga-interface.md).
//
// The drivers are fpga/xdma, for AMD's XDMA IP, and fpga/edu, for QEMU's edu device. fpga/model is the FPGA in software,
// and fpga/vfiouser shows it to a virtual machine. fpga/rtl is its camera as hardware.
package fpga
