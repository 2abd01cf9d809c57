// SPDX-License-Identifier: Apache-2.0

// Package tegra implements GPUDirect RDMA on Tegra. It pins CUDA-visible host memory and maps it for a PCI Express
// function, and takes it away from the function safely if the memory is freed while in use.
//
// The rules are those of the Tegra variant of nv-p2p (GPUDirect RDMA 12.9 §13.4): base and length are multiples of 4
// KiB, the free callback runs on every unpin as well as on revocation, and the device must not access the memory after
// a revocation.
package tegra
