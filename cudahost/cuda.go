// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"unsafe"
)

// CUDA is the back end of machines with a GPU: memory of cuMemHostAlloc, which CPU, GPU and, pinned, the FPGA share.
type CUDA struct {
	Device      *Device
	invalidator Invalidator
}

// Close releases the device; the buffers must have been closed.
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

// AllocHost allocates one page more than asked, in front of the buffer: nv-p2p's notifier takes a change of the mapping
// that ends where a pin begins for a change of the pin, so no foreign mapping may end there. SYNC_MEMOPS is set, once
// (GPUDirect RDMA 12.9 §11.6).
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
	err := c.Device.do(func(d *driver) error {
		if err := d.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&base)), uintptr(length), uintptr(flags)); err != nil {
			return err
		}
		err := d.prepare(uintptr(base), c.Device.unified, flags, &device)
		if err == nil {
			info, err = d.inspect(uintptr(base))
		}
		if err != nil {
			_ = d.call(cuMemFreeHost, uintptr(base)) // the first error says more
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
			return c.Device.do(func(d *driver) error { return d.call(cuMemFreeHost, uintptr(base)) })
		},
	}
	if device != 0 {
		b.dev = device + pageSize
	}
	return b, nil
}

// prepare sets SYNC_MEMOPS and finds the device pointer; 0 is the host's.
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

// PointerInfo is what CUDA knows of an address.
type PointerInfo struct {
	BufferID uint64 // never repeats
	Host     bool   // memory of the host
	Managed  bool   // migrates between host and device: cannot be pinned
	Start    uintptr
	Size     int // of the allocation
}

// Inspect asks CUDA about an address, in one call.
func (c *CUDA) Inspect(addr uintptr) (info PointerInfo, err error) {
	err = c.Device.do(func(d *driver) error {
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

// ErrManaged is wrapped when memory cannot be pinned since CUDA moves it about.
var ErrManaged = errors.New("managed memory cannot be pinned: allocate it with cudaHostAlloc")
