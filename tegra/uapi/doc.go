// SPDX-License-Identifier: Apache-2.0

// Package uapi is the ioctl interface of the kernel module tegra_p2p: tegra/kmod/tegra_p2p.h in Go, with one function for
// each call. docs/module.md describes the calls. Package tegra is more convenient.
//
// Structs have the same layout on every architecture, without hidden padding. Those of the calls start with Argsz and
// Flags; the functions set Argsz if it is 0. Addresses of user memory are uint64, as in the header.
package uapi
