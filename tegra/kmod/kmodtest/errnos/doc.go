// SPDX-License-Identifier: Apache-2.0

// Package errnos lists the errors that docs/kernel-abi.md allows each call of tegra_p2p to return, for tests that make
// calls fail.
package errnos
