// SPDX-License-Identifier: Apache-2.0

// Package tegrasim implements the contract of package tegra within the process: pins of ordinary memory, scattered bus
// addresses, an SMMU that rejects accesses to what is not mapped, and revocation. It stands in for the kernel module,
// the SMMU and PCI Express, so that the driver and the FPGA model run on any machine.
package tegrasim
