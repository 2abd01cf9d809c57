// SPDX-License-Identifier: Apache-2.0

// Package rtl is the FPGA's side in hardware: a camera according to docs/fpga-interface.md in SystemVerilog, to be
// placed behind AMD's XDMA IP (docs/fpga-design.md). Its tests simulate it, and compare its frames and registers with
// those of fpga/model.
package rtl
