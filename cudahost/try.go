// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
)

// Try uses CUDA as the program does: it opens the first GPU, allocates 4 KiB of host memory with SYNC_MEMOPS, and finds
// out how kernels access that (GPUDirect RDMA 13.4.1). It returns what it has found. CUDA may hang or crash meanwhile.
func Try() (about string, err error) { return try(libcuda) }

func try(library string) (about string, err error) {
	g, err := openDevice(library)
	if err != nil {
		return "", err
	}
	c := &CUDA{Device: g}
	defer func() { err = errors.Join(err, c.Close()) }()
	b, err := c.AllocHost(pageSize, Mapped)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	access := "the CPU's address"
	if !g.unified {
		access = "an address of their own (cudaHostGetDevicePointer)"
	}
	return fmt.Sprintf("%s; memory of cudaHostAlloc with SYNC_MEMOPS, which kernels access by %s", g, access), nil
}
