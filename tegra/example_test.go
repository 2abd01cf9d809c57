// SPDX-License-Identifier: Apache-2.0

package tegra_test

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// Two pages are pinned, the device writes to them, and then they are taken away from it. On a board the Pinner would be
// a Device, returned by Open.
func ExamplePinner() {
	memory, err := unix.Mmap(-1, 0, 2*tegra.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer unix.Munmap(memory)
	device, err := tegrasim.New(tegrasim.Config{Contiguous: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	generation, _ := device.Fenced() // like every function that has not been used yet
	if err := device.Resume(generation); err != nil {
		fmt.Println(err)
		return
	}
	var pinner tegra.Pinner = device
	addr := uintptr(unsafe.Pointer(&memory[0]))
	pin, err := pinner.Pin(addr, len(memory), tegra.FromDevice, tegra.WriteBack)
	if err != nil {
		fmt.Println(err)
		return
	}
	pin.OnFree(func(reason tegra.Reason) { fmt.Println("the device has lost the memory:", reason) })
	segment := pin.Segments[0]
	fmt.Println(len(pin.Segments), "segment of", segment.Len, "bytes")
	fmt.Println(device.Write(segment.IOVA, []byte("by DMA")), string(memory[:6]))

	device.Invalidate(addr, len(memory)) // as the kernel does on munmap
	<-pin.Revoked()
	fmt.Println("revoked:", errors.Is(pin.Unpin(), tegra.ErrRevoked))

	generation, fenced := device.Fenced()
	fmt.Println("fenced:", fenced, device.Resume(generation), device.Close())
	// Output:
	// 1 segment of 8192 bytes
	// <nil> by DMA
	// the device has lost the memory: memory freed
	// revoked: true
	// fenced: true <nil> <nil>
}
