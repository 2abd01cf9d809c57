// SPDX-License-Identifier: Apache-2.0

// Package tegrasim keeps the contract of package tegra inside the process: pins of ordinary memory, scattered bus
// addresses, an SMMU that refuses what is not mapped, and revocation. It stands in for the kernel module, the SMMU and PCI
// Express, so that driver and FPGA model run on any machine.
package tegrasim
