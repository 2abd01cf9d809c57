// SPDX-License-Identifier: Apache-2.0

// Package cufile moves data between files and memory that a GPU can reach, as NVIDIA's cuFile API does (GPUDirect Storage, "cuFile
// API Reference"; sections in comments are that document's). It has no notion of a frame.
//
// It has two back ends: NVIDIA's libcufile, opened at run time, and what works everywhere, the compatibility mode of §2.3, which
// needs neither CUDA nor a driver: io_uring with registered files and buffers, else preadv2 and pwritev2. On a Jetson memory of
// cudaHostAlloc is the host's memory, so that a file is read and written straight from it, without a bounce buffer.
package cufile
