// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"unsafe"
)

// A DeviceMemory is memory of the GPU, which the CPU cannot access. On an integrated GPU it is physically part of the
// CPU's memory.
type DeviceMemory struct {
	Pointer uintptr // address for kernels
	Size    int     // bytes
	device  *Device
}

// AllocDevice allocates size bytes of memory of the GPU, aligned to 256 bytes. Its contents are undefined. The caller
// must close it.
func (g *Device) AllocDevice(size int) (*DeviceMemory, error) {
	if size <= 0 {
		return nil, fmt.Errorf("%w: %d bytes of device memory", ErrSize, size)
	}
	m := &DeviceMemory{Size: size, device: g}
	err := g.withContext(func(d *driver) error {
		return d.call(cuMemAlloc, uintptr(unsafe.Pointer(&m.Pointer)), uintptr(size))
	})
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes of device memory: %w", size, err)
	}
	return m, nil
}

// Close frees the memory, which must no longer be in use.
func (m *DeviceMemory) Close() error {
	return m.device.withContext(func(d *driver) error { return d.call(cuMemFree, m.Pointer) })
}

// Write copies b to the start of the memory, and returns after it has arrived there. The error wraps ErrSize if b is
// longer than the memory.
func (m *DeviceMemory) Write(b []byte) error {
	if len(b) > m.Size {
		return fmt.Errorf("%w: %d bytes into %d of device memory", ErrSize, len(b), m.Size)
	}
	if len(b) == 0 {
		return nil
	}
	return m.device.withContext(func(d *driver) error {
		err := d.call(cuMemcpyHtoD, m.Pointer, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		return errors.Join(err, d.call(cuStreamSynchronize, 0)) // cuMemcpyHtoD may return as soon as b has been read
	})
}

// Lines describe a rectangle of bytes: Height lines of Width bytes, with Stride bytes from the start of one to that of
// the next.
type Lines struct{ Width, Height, Stride int }

// copy2D is CUDA_MEMCPY2D.
type copy2D struct {
	srcX, srcY uintptr
	srcType    uint32
	srcHost    uintptr
	srcDevice  uintptr
	srcArray   uintptr
	srcPitch   uintptr
	dstX, dstY uintptr
	dstType    uint32
	dstHost    uintptr
	dstDevice  uintptr
	dstArray   uintptr
	dstPitch   uintptr
	width      uintptr
	height     uintptr
}

const memoryTypeDevice = 2

// CopyIn enqueues a copy of lines from host memory, which must come from AllocHost, to device memory with the same
// stride.
func (s *Stream) CopyIn(to, from uintptr, l Lines) error {
	return s.copy(copy2D{srcType: memoryTypeHost, srcHost: from, dstType: memoryTypeDevice, dstDevice: to}, l)
}

// CopyOut enqueues a copy of lines from device memory to host memory. The bytes between the lines are not changed.
func (s *Stream) CopyOut(to, from uintptr, l Lines) error {
	return s.copy(copy2D{srcType: memoryTypeDevice, srcDevice: from, dstType: memoryTypeHost, dstHost: to}, l)
}

func (s *Stream) copy(c copy2D, l Lines) error {
	c.srcPitch, c.dstPitch, c.width, c.height = uintptr(l.Stride), uintptr(l.Stride), uintptr(l.Width), uintptr(l.Height)
	s.copying.Lock()
	defer s.copying.Unlock()
	s.rectangle = c
	return s.device.withContext(func(d *driver) error {
		return d.pointed(cuMemcpy2DAsync, uintptr(unsafe.Pointer(&s.rectangle)), 0, []uintptr{0, s.handle})
	})
}

// Read enqueues a copy of size bytes from device memory to host memory.
func (s *Stream) Read(to, from uintptr, size int) error {
	return s.device.withContext(func(d *driver) error { return d.quick(cuMemcpyDtoHAsync, to, from, uintptr(size), s.handle) })
}

// Clear enqueues setting size bytes of device memory to zero.
func (s *Stream) Clear(at uintptr, size int) error { return s.Fill(at, 0, size) }

// Fill enqueues the filling of device memory, or of mapped host memory, with a byte value.
func (s *Stream) Fill(at uintptr, value byte, size int) error {
	return s.device.withContext(func(d *driver) error { return d.quick(cuMemsetD8Async, at, uintptr(value), uintptr(size), s.handle) })
}

// An Event is a point in a stream that other streams can wait for. It can be reused.
type Event struct {
	device *Device
	handle uintptr
}

// NewEvent creates an event. The caller must close it.
func (g *Device) NewEvent() (*Event, error) {
	e := &Event{device: g}
	return e, g.withContext(func(d *driver) error {
		return d.call(cuEventCreate, uintptr(unsafe.Pointer(&e.handle)), eventNoTiming)
	})
}

// Mark sets the event to the current end of the stream's work.
func (s *Stream) Mark(e *Event) error {
	return s.device.withContext(func(d *driver) error { return d.quick(cuEventRecord, e.handle, s.handle) })
}

// After makes work that is enqueued on the stream from now on wait for the event's latest mark.
func (s *Stream) After(e *Event) error {
	return s.device.withContext(func(d *driver) error { return d.quick(cuStreamWaitEvent, s.handle, e.handle, 0) })
}

// Close frees the event.
func (e *Event) Close() error {
	return e.device.withContext(func(d *driver) error { return d.call(cuEventDestroy, e.handle) })
}
