// SPDX-License-Identifier: Apache-2.0

// Package cudatest helps to test packages that use CUDA, on machines with and without a GPU. Without one, g++ and the
// CPU stand for the GPU: that does not show speed, warps, or what an integrated GPU caches (docs/stand-ins.md).
package cudatest
