// SPDX-License-Identifier: Apache-2.0

// Package endpoint makes the FPGA model a PCI Express card of a virtual machine: fpga/model behind fpga/vfiouser. Its DMA
// goes through the machine's IOMMU, its registers are BARs, and its interrupts are MSI-X, MSI or the line.
package endpoint
