// SPDX-License-Identifier: Apache-2.0

// Package vjetson runs the virtual Jetson: an arm64 or amd64 machine under QEMU with Debian's stock kernel, an IOMMU and
// PCI Express, controlled from Go. It stands in for the board in tests, and lets users try tegracast.
//
// Start boots a machine. Machine.Run runs a command in it, and CopyIn copies a file into it. Close returns unexpected
// kernel faults as an error, and leaves no process, socket or temporary file. Tests use StartTest. docs/vjetson.md
// explains the machine, which does not show timing, throughput, thermal limits or NVIDIA's kernel (docs/stand-ins.md).
package vjetson
