// SPDX-License-Identifier: Apache-2.0

// Package kmodtest tests tegra_p2p.ko in the virtual Jetson, on the edu device behind the SMMU, with both ways of pinning
// and with slub's debugging. The tests themselves are in package guest and run in the machine.
package kmodtest
