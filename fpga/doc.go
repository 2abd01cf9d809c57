// SPDX-License-Identifier: Apache-2.0

// Package fpga describes DMA engines at register level: it defines the interfaces that drivers of such engines use, and
// the parts that the FPGA designs for tegracast share: the control registers of the camera and the frame trailer (both
// documented in docs/fpga-interface.md).
//
// The drivers are fpga/xdma, for AMD's XDMA IP, and fpga/edu, for QEMU's edu device. fpga/model simulates the FPGA in
// software, and fpga/vfiouser exposes that model to a virtual machine. fpga/rtl is the camera as hardware.
package fpga
