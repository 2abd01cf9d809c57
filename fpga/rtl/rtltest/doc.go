// SPDX-License-Identifier: Apache-2.0

// Package rtltest is for tests of what stands behind the FPGA's design (fpga/rtl): it builds the design as a shared library, by
// Verilator, and puts it as a camera behind the DMA engine of fpga/model. Nothing else in tegracast depends on Verilator.
package rtltest
