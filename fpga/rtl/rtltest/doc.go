// SPDX-License-Identifier: Apache-2.0

// Package rtltest is for tests that use the FPGA's design (fpga/rtl). It builds the design as a shared library, by
// Verilator, and connects it as a camera to the DMA engine of fpga/model. Nothing else in tegracast depends on
// Verilator. A simulation does not show timing, metastability, or what synthesis makes of the design
// (docs/stand-ins.md).
package rtltest
