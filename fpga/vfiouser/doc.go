// SPDX-License-Identifier: Apache-2.0

// Package vfiouser serves a PCI function to a virtual machine by the vfio-user protocol (QEMU,
// docs/interop/vfio-user.rst). The client is QEMU 10.1 or newer with -device vfio-user-pci.
//
// The machine sees a PCI Express endpoint: configuration space, BARs, resets, and interrupts by MSI-X, MSI or a line. The
// function does DMA through Memory, which reaches what the machine has mapped for the function and nothing else, so the
// machine's IOMMU protects it as it does from a card. Other accesses are refused and counted, and the machine's IOMMU
// sees and reports them.
//
// Package endpoint puts the FPGA model behind it.
package vfiouser
