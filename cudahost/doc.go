// SPDX-License-Identifier: Apache-2.0

// Package cudahost allocates the memory of frames: host memory that a GPU and a PCI Express device reach as well as the
// CPU.
//
// On a machine with CUDA it is memory from cudaHostAlloc, the only kind that GPUDirect RDMA on Tegra pins (GPUDirect RDMA
// 12.9 §13.4.1). Elsewhere it is locked anonymous memory with the same properties.
package cudahost
