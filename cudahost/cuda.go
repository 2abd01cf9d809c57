// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"unsafe"
)

// CUDA is the back end for machines with a GPU. Its memory, except Shared memory, comes from cuMemHostAlloc. It can be
// used by the CPU, the GPU and, once pinned, the FPGA.
type CUDA struct {
	Device      *Device
	invalidator Invalidator
}

// Close releases the device. The buffers must have been closed.
func (c *CUDA) Close() error { return c.Device.Close() }

// Backend implements Allocator.
func (c *CUDA) Backend() string { return "cuda" }

// Pointer attributes (CUpointer_attribute).
const (
	pointerMemoryType = 2
	pointerSyncMemops = 6
	pointerBufferID   = 7
	pointerIsManaged  = 8
	pointerRangeStart = 11
	pointerRangeSize  = 12
	memoryTypeHost    = 1
)

// AllocHost implements Allocator. It allocates one more page than requested, in front of the buffer: nv-p2p's notifier
// mistakes a change of a mapping that ends where a pin starts for a change of the pin, so no foreign mapping may end
// there. It sets the buffer's attribute SYNC_MEMOPS (GPUDirect RDMA 12.9 §11.6).
func (c *CUDA) AllocHost(size int, flags Flags) (*Buffer, error) {
	if err := checkRequest(size, flags); err != nil {
		return nil, err
	}
	if flags&Shared != 0 {
		return c.allocShared(size, flags)
	}
	length := withLeadingPage(size)
	var base unsafe.Pointer
	var info PointerInfo
	var device uintptr
	err := c.Device.withContext(func(d *driver) error {
		if err := d.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&base)), uintptr(length), uintptr(flags)); err != nil {
			return err
		}
		err := d.prepare(uintptr(base), c.Device.unified, flags, &device)
		if err == nil {
			info, err = d.inspect(uintptr(base))
		}
		if err != nil {
			_ = d.call(cuMemFreeHost, uintptr(base)) // the first error is more informative
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes with CUDA: %w", length, err)
	}
	bytes := unsafe.Slice((*byte)(unsafe.Add(base, pageSize)), size)
	clear(bytes)
	b := &Buffer{
		id: info.BufferID, flags: flags, invalidator: c.invalidator, bytes: bytes, addr: uintptr(base) + pageSize,
		free: func() error {
			return c.Device.withContext(func(d *driver) error { return d.call(cuMemFreeHost, uintptr(base)) })
		},
	}
	if device != 0 {
		b.dev = device + pageSize
	}
	return b, nil
}

// prepare sets SYNC_MEMOPS and finds the device pointer. It leaves *device 0 if the device pointer equals the host
// pointer, or if flags lack Mapped.
func (d *driver) prepare(base uintptr, unified bool, flags Flags, device *uintptr) error {
	on := uint32(1)
	if err := d.call(cuPointerSetAttribute, uintptr(unsafe.Pointer(&on)), pointerSyncMemops, base); err != nil {
		return err
	}
	if unified || flags&Mapped == 0 {
		return nil
	}
	return d.call(cuMemHostGetDevicePointer, uintptr(unsafe.Pointer(device)), base, 0)
}

// PointerInfo describes an address as known to CUDA.
type PointerInfo struct {
	BufferID uint64  // unique for each allocation
	Host     bool    // it is in host memory
	Managed  bool    // migrates between host and device, so it cannot be pinned
	Start    uintptr // of the allocation that contains the address
	Size     int     // of that allocation in bytes
}

// Inspect queries CUDA about an address, in one call.
func (c *CUDA) Inspect(addr uintptr) (info PointerInfo, err error) {
	err = c.Device.withContext(func(d *driver) error {
		info, err = d.inspect(addr)
		return err
	})
	return info, err
}

func (d *driver) inspect(addr uintptr) (PointerInfo, error) {
	var kind, managed uint32
	var info PointerInfo
	attributes := [5]uint32{pointerMemoryType, pointerBufferID, pointerIsManaged, pointerRangeStart, pointerRangeSize}
	data := [5]unsafe.Pointer{
		unsafe.Pointer(&kind), unsafe.Pointer(&info.BufferID), unsafe.Pointer(&managed),
		unsafe.Pointer(&info.Start), unsafe.Pointer(&info.Size),
	}
	err := d.call(cuPointerGetAttributes, uintptr(len(attributes)), uintptr(unsafe.Pointer(&attributes)),
		uintptr(unsafe.Pointer(&data)), addr)
	info.Host, info.Managed = kind == memoryTypeHost, managed != 0
	return info, err
}

// ErrManaged is wrapped if memory cannot be pinned because CUDA migrates it.
var ErrManaged = errors.New("managed memory cannot be pinned: allocate it with cudaHostAlloc")
