// SPDX-License-Identifier: Apache-2.0

// Package arm64test runs tests of arm64 assembly on an emulated processor. QEMU's processor stands for a Jetson's: it
// does not show how fast the code is, or how a board orders memory.
package arm64test
