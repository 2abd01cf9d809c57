// SPDX-License-Identifier: Apache-2.0

// Package tegratest checks that a back end of package tegra keeps the contract of tegra.Pinner and tegra.Fencer. The
// kernel module and its simulation pass the same table.
package tegratest
