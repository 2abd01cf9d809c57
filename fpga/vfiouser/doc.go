// SPDX-License-Identifier: Apache-2.0

// Package vfiouser serves a PCI function to a virtual machine by the vfio-user protocol (QEMU,
// docs/interop/vfio-user.rst). The client is QEMU 10.1 or newer with -device vfio-user-pci.
//
// The machine sees a PCI Express endpoint with configuration space, BARs, resets, and interrupts by MSI-X, MSI or a
// line. The function does DMA through Memory, which can access only what the machine has mapped for the function, so
// the machine's IOMMU protects the machine as from a real card. Other accesses are refused and counted, and the
// machine's IOMMU sees and reports them.
//
// Package endpoint connects this package to the FPGA model. Such a card does not show a real link: it has no
// training, no order of packets, and no real port (docs/stand-ins.md).
package vfiouser
