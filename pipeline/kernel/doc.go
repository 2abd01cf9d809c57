// SPDX-License-Identifier: Apache-2.0

// Package kernel is a stage that runs a user's own CUDA kernel: a file that is compiled for the GPU of the machine, and
// compiled again when it changes. docs/kernels/README.md says what a kernel gets, what it may do, and what happens to one
// that breaks the GPU.
package kernel
