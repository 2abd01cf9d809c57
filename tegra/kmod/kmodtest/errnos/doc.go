// SPDX-License-Identifier: Apache-2.0

// Package errnos lists the errors that each call of tegra_p2p may return according to docs/module.md, for tests that make
// calls fail.
package errnos
