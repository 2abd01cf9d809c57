// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrReadOnly means that a GPU cannot access memory that is mapped read-only. Frames in such memory must be copied to
// the device.
var ErrReadOnly = errors.New("the GPU cannot access memory that is mapped read-only")

// Flags of cuMemHostRegister.
const (
	registerMapped   = 0x02 // CU_MEMHOSTREGISTER_DEVICEMAP
	registerReadOnly = 0x08 // CU_MEMHOSTREGISTER_READ_ONLY
)

// RegisterReadOnly lets kernels read memory that this process has mapped read-only, such as the memfd of another
// process's Shared buffer (Buffer.File), without copying. memory must be a whole mapping, and must not be registered
// already. pointer is the address of its first byte for kernels, which must not write there. unregister ends the
// registration; it must be called once, when no kernel reads the memory any more and before it is unmapped. The error
// wraps ErrReadOnly if the GPU does not support this, or ErrSize if memory is empty or does not begin at a page.
func (g *Device) RegisterReadOnly(memory []byte) (pointer uintptr, unregister func() error, err error) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	if len(memory) == 0 || base%pageSize != 0 {
		return 0, nil, fmt.Errorf("%w: %d bytes at %#x cannot be registered: pass a mapping returned by mmap", ErrSize, len(memory), base)
	}
	err = g.withContext(func(d *driver) error {
		if err := g.readsReadOnly(d); err != nil {
			return err
		}
		if err := d.call(cuMemHostRegister, base, uintptr(len(memory)), registerMapped|registerReadOnly); err != nil {
			return err
		}
		err := d.call(cuMemHostGetDevicePointer, uintptr(unsafe.Pointer(&pointer)), base, 0)
		if err != nil {
			_ = d.call(cuMemHostUnregister, base) // the first error is more informative
		}
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("registering %d bytes of read-only memory with CUDA: %w", len(memory), err)
	}
	return pointer, func() error {
		return g.withContext(func(d *driver) error { return d.call(cuMemHostUnregister, base) })
	}, nil
}

// readsReadOnly returns an error unless the driver reports that the GPU can access memory that is mapped read-only.
func (g *Device) readsReadOnly(d *driver) error {
	var can int32
	if err := d.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&can)), attrReadOnlyRegister, uintptr(g.number)); err != nil { // unknown to it
		return fmt.Errorf("%w: the driver of %s does not report that it can: copy the bytes to the device: %w", ErrReadOnly, g.Name, err)
	}
	if can == 0 {
		return fmt.Errorf("%w: %s says so (CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED is 0): copy the bytes to the device", ErrReadOnly, g.Name)
	}
	return nil
}
