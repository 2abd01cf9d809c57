// SPDX-License-Identifier: Apache-2.0

// Package model is the FPGA in software: AMD's XDMA IP as the host sees its registers (PG195), and behind it block RAM,
// cameras, and sinks for frames. It is written from the register tables and docs/fpga-interface.md alone and shares no
// code with the driver, so that each shows the mistakes of the other.
package model
