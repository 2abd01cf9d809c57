// SPDX-License-Identifier: Apache-2.0

// Package xdma drives AMD's DMA/Bridge Subsystem for PCI Express in DMA mode (XDMA, PG195) from user space. It provides
// memory-mapped transfers in both directions, a ring of frames on a C2H stream, and one on an H2C stream.
//
// Descriptor lists are written once, into memory that the device reads. After that, a transfer or frame takes only a
// few register writes.
//
// The driver trusts no wake-up: interrupts, poll-mode write-backs and the tick of Config.Watchdog are only hints to
// read the registers. So a lost interrupt costs nothing but latency, and a stale write-back costs one read.
package xdma
