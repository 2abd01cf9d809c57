// SPDX-License-Identifier: Apache-2.0

// Package model is the FPGA in software: AMD's XDMA IP with its registers as seen by the host (PG195), and behind it
// block RAM, cameras, and sinks for frames. It is written only from the register tables and docs/fpga-interface.md, and
// shares no code with the driver, so that each reveals the mistakes of the other.
package model
