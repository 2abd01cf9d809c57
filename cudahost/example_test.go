// SPDX-License-Identifier: Apache-2.0

package cudahost_test

import (
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
)

// told prints what an Invalidator is told before memory goes away.
type told struct{}

func (told) Invalidate(_ uintptr, size int) {
	fmt.Println("no device may touch these", size, "bytes now")
}

// A buffer is allocated, written by the CPU, and freed. With the back end "auto" it would come from CUDA if there is a
// GPU.
func Example() {
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Invalidator: told{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer memory.Close()
	buffer, err := memory.AllocHost(1920*1080*2, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	copy(buffer.Bytes(), "a frame")
	fmt.Println(memory.Backend(), len(buffer.Bytes()), buffer.Addr()%4096 == 0, buffer.DevicePointer() == buffer.Addr())
	fmt.Println(buffer.Close())
	// Output:
	// host 4147200 true true
	// no device may touch these 4147200 bytes now
	// <nil>
}
