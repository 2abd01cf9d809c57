// SPDX-License-Identifier: Apache-2.0

// Package cudahost allocates memory for frames: host memory that the CPU, a GPU and a PCI Express device can access.
//
// On a machine with CUDA it comes from cudaHostAlloc, the only kind of memory that GPUDirect RDMA on Tegra can pin
// (GPUDirect RDMA 12.9 §13.4.1). Elsewhere it is ordinary memory, locked as far as the limit allows, with the same
// alignment and the same use.
package cudahost
