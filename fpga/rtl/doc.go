// SPDX-License-Identifier: Apache-2.0

// Package rtl is the FPGA's half as hardware: a camera of docs/fpga-interface.md in SystemVerilog, which a design puts behind
// AMD's XDMA IP (docs/fpga-design.md). Its tests simulate it, and compare its frames and registers with those of fpga/model.
package rtl
