// SPDX-License-Identifier: Apache-2.0

// Package tegratest checks that a back end of package tegra fulfils the contract of tegra.Pinner and tegra.Fencer. The
// kernel module and its simulation must pass the same table. The table does not show how long a revocation takes, or what a
// Jetson's SMMU does.
package tegratest
