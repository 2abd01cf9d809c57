// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"
)

// A region is registered memory.
type region struct {
	back  backend // has registered it
	base  uintptr
	size  int
	place int // in the engine's table
}

// RegisterBuffer registers size bytes at base for transfers (cuFileBufRegister, §4.3.1), so that the kernel pins the
// pages once, and not for each transfer. base must be host memory that does not move, and not on Go's heap. flags must
// be 0.
//
// Errors wrap InvalidValue, MemoryAlreadyRegistered (also for an overlapping range), InvalidMappingSize (more than may
// be pinned), DriverNotInitialized, DriverClosing, or libcufile's error.
func (d *Driver) RegisterBuffer(base uintptr, size, flags int) error {
	const call = "cuFileBufRegister"
	if err := d.use(call); err != nil {
		return err
	}
	defer d.done()
	what := fmt.Sprintf("%d bytes at %#x", size, base)
	if base == 0 || size <= 0 || flags != 0 || base+uintptr(size) < base {
		return &Error{Call: call, What: what, Status: InvalidValue}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.memory {
		if base < r.base+uintptr(r.size) && r.base < base+uintptr(size) {
			return &Error{Call: call, What: what, Status: MemoryAlreadyRegistered}
		}
	}
	if limit := d.set.MaxPinned; uint64(d.pinned)+uint64(size) > limit<<10 {
		return &Error{
			Call: call, What: what, Status: InvalidMappingSize,
			Why: fmt.Errorf("%d bytes are pinned, and %d KiB may be: raise properties.max_device_pinned_mem_size_kb", d.pinned, limit),
		}
	}
	place, err := d.back.addBuffer(base, size)
	if err != nil {
		return err
	}
	d.memory[base] = &region{back: d.back, base: base, size: size, place: place}
	d.pinned += int64(size)
	return nil
}

// DeregisterBuffer ends a registration (cuFileBufDeregister, §4.3.2). No transfer may use the memory. Errors wrap
// MemoryNotRegistered, DriverNotInitialized, DriverClosing, or libcufile's error.
func (d *Driver) DeregisterBuffer(base uintptr) error {
	const call = "cuFileBufDeregister"
	if err := d.use(call); err != nil {
		return err
	}
	defer d.done()
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.memory[base]
	if r == nil {
		return &Error{Call: call, What: fmt.Sprintf("memory at %#x", base), Status: MemoryNotRegistered}
	}
	delete(d.memory, base)
	d.pinned -= int64(r.size)
	return r.back.dropBuffer(r)
}

// place returns the place of memory in the engine's table, or -1 if it is not registered. The error wraps
// InvalidMappingRange if the range exceeds the end of registered memory.
func (d *Driver) place(call string, base uintptr, size int, offset int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.memory[base]
	switch {
	case r == nil:
		return -1, nil
	case int64(r.size)-offset < int64(size):
		return -1, &Error{
			Call: call, What: fmt.Sprintf("%d bytes at %#x", r.size, base), Status: InvalidMappingRange,
			Why: fmt.Errorf("%d bytes from byte %d on were requested", size, offset),
		}
	}
	return r.place, nil
}
