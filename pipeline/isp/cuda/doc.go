// SPDX-License-Identifier: Apache-2.0

// Package cuda implements the isp of docs/isp.md on an NVIDIA GPU. It produces the same bytes as package isp, with
// kernels that are compiled for the machine's GPU when formats are planned. docs/cuda.md describes how they work.
package cuda
