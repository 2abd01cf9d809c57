// SPDX-License-Identifier: Apache-2.0

// Package endpoint presents the FPGA model to a virtual machine as a PCI Express card, by fpga/model and fpga/vfiouser.
// Its DMA goes through the machine's IOMMU, its registers are BARs, and its interrupts are MSI-X, MSI or the line. It
// does not show the speed of a real card.
package endpoint
