// SPDX-License-Identifier: Apache-2.0

// Package edu drives QEMU's edu device (1234:11e8; QEMU docs/specs/edu): a DMA engine with a 4 KiB buffer, which
// executes one command at a time and has one MSI vector. It stands in for an FPGA in tests that need a real IOMMU and a
// real kernel.
package edu
