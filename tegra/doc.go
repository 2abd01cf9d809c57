// SPDX-License-Identifier: Apache-2.0

// Package tegra is GPUDirect RDMA on Tegra. It pins CUDA-visible host memory and maps it for a PCI Express function, and
// takes it from the function safely when the memory is freed while the function uses it.
//
// The rules are those of the Tegra variant of nv-p2p (GPUDirect RDMA 12.9 §13.4): base and length are multiples of 4 KiB,
// the free callback runs on every unpin as well as on revocation, and the device must not touch the memory after a
// revocation.
package tegra
