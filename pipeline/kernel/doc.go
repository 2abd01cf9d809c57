// SPDX-License-Identifier: Apache-2.0

// Package kernel implements a stage that runs a user's own CUDA kernel: a file that is compiled for the machine's GPU,
// and compiled again when it changes. docs/kernels/README.md describes what a kernel gets, what it may do, and what
// happens to one that breaks the GPU.
package kernel
