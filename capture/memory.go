// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
)

// Surface is pinned memory: a buffer that CPU, GPU and FPGA can access.
type Surface struct {
	Buffer *cudahost.Buffer
	Pin    *tegra.Pin
	Memory fpga.Memory // the device's view of the surface, without the padding added for the pin
}

// NewSurface allocates size bytes, rounded up to a multiple of tegra.PageSize, and pins them for the device. The caller
// must close the Surface.
func NewSurface(mem cudahost.Allocator, pinner tegra.Pinner, size int, flags cudahost.Flags, dir tegra.Direction) (*Surface, error) {
	buffer, err := newBuffer(mem, size, flags)
	if err != nil {
		return nil, err
	}
	pin, memory, err := pinBuffer(mem, pinner, buffer, size, dir)
	if err != nil {
		return nil, errors.Join(err, buffer.Close())
	}
	return &Surface{Buffer: buffer, Pin: pin, Memory: memory}, nil
}

// Close unpins and frees the surface. The device must no longer use it.
func (s *Surface) Close() error { return errors.Join(s.Pin.Unpin(), s.Buffer.Close()) }

// newBuffer allocates size bytes, rounded up to whole pages so that they can be pinned.
func newBuffer(mem cudahost.Allocator, size int, flags cudahost.Flags) (*cudahost.Buffer, error) {
	if size <= 0 || size > tegra.MaxPinSize {
		return nil, fmt.Errorf("surface of %d bytes: %w: from 1 to %d", size, tegra.ErrSize, tegra.MaxPinSize)
	}
	return mem.AllocHost((size+tegra.PageSize-1)&^(tegra.PageSize-1), flags)
}

// newSlots allocates slots of size bytes each for frames of a format, which needs no more. They belong to the pool that is
// made of them.
func newSlots(mem cudahost.Allocator, count, size int, f pipeline.Format, flags cudahost.Flags) (buffers []*cudahost.Buffer, slots []pipeline.Slot, err error) {
	for range count {
		b, err := newBuffer(mem, size, flags)
		if err != nil {
			errs := []error{fmt.Errorf("frame slot: %w", err)}
			for _, b := range buffers {
				errs = append(errs, b.Close())
			}
			return nil, nil, errors.Join(errs...)
		}
		buffers = append(buffers, b)
		file, offset := b.File()
		slots = append(slots, pipeline.Slot{Bytes: b.Bytes()[:f.Size()], Device: b.DevicePointer(), File: file, Offset: offset, Close: b.Close})
	}
	return buffers, slots, nil
}

// pinBuffer pins a whole buffer and returns the device's view of its first size bytes.
func pinBuffer(mem cudahost.Allocator, pinner tegra.Pinner, b *cudahost.Buffer, size int, dir tegra.Direction) (*tegra.Pin, fpga.Memory, error) {
	attr := tegra.WriteBack
	if b.Flags()&cudahost.WriteCombined != 0 {
		attr = tegra.WriteCombined
	}
	return pinBytes(mem, pinner, b.Bytes()[:size], attr, dir)
}

// inspector is an allocator that can determine the kind of memory at an address (cudahost.CUDA).
type inspector interface {
	Inspect(addr uintptr) (cudahost.PointerInfo, error)
}

// pinBytes pins the first bytes of a buffer, rounded up to whole pages, and returns the device's view of them. All
// memory that this package makes accessible to a device is pinned here, except descriptors (CoherentMemory). Managed
// memory, which CUDA moves even while it is pinned, is refused with cudahost.ErrManaged (GPUDirect RDMA 12.9, chapter
// 4).
func pinBytes(mem cudahost.Allocator, pinner tegra.Pinner, b []byte, attr tegra.CacheAttr, dir tegra.Direction) (*tegra.Pin, fpga.Memory, error) {
	if c, ok := mem.(inspector); ok {
		if info, err := c.Inspect(uintptr(unsafe.Pointer(&b[0]))); err != nil {
			return nil, fpga.Memory{}, fmt.Errorf("asking CUDA about %d bytes to be pinned: %w", len(b), err)
		} else if info.Managed {
			return nil, fpga.Memory{}, fmt.Errorf("%d bytes at %p: %w", len(b), &b[0], cudahost.ErrManaged)
		}
	}
	pin, err := pinner.Pin(uintptr(unsafe.Pointer(&b[0])), (len(b)+tegra.PageSize-1)&^(tegra.PageSize-1), dir, attr)
	if err != nil {
		return nil, fpga.Memory{}, err
	}
	n, list := len(b), segments(pin.Segments)
	for i := range list { // the last page may extend beyond b
		list[i].Len = min(list[i].Len, n)
		n -= list[i].Len
	}
	return pin, fpga.Memory{Bytes: b, Segments: list}, nil
}

func segments(list []tegra.Segment) []fpga.Segment {
	out := make([]fpga.Segment, len(list))
	for i, s := range list {
		out[i] = fpga.Segment{Addr: s.IOVA, Len: s.Len}
	}
	return out
}

// CoherentMemory returns a function that allocates descriptor memory for an XDMA driver from a pinner.
func CoherentMemory(p tegra.Pinner) func(size int) (xdma.Coherent, error) {
	return func(size int) (xdma.Coherent, error) {
		c, err := p.AllocCoherent(size)
		if err != nil {
			return xdma.Coherent{}, err
		}
		return xdma.Coherent{Memory: fpga.Memory{Bytes: c.Bytes, Segments: segments(c.Segments)}, Close: c.Close}, nil
	}
}
