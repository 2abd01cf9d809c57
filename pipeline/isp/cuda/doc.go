// SPDX-License-Identifier: Apache-2.0

// Package cuda is the isp of docs/isp.md on an NVIDIA GPU: the same bytes as package isp makes, by kernels that are
// compiled for the machine's own GPU when formats are planned. docs/cuda.md says how they work.
package cuda
