// SPDX-License-Identifier: Apache-2.0

package uapi

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ioctl makes a call on the open device fd with the structure at arg, whose Argsz must be set. After EINTR it makes the
// call again. The other functions are built on it. Its error is an *Error.
func Ioctl(fd int, call uint, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(call), uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR: // nothing was done
			continue
		}
		return &Error{Call: call, Errno: errno}
	}
}

// sized fills in the size of a structure, in its first field, if that is 0. It returns the structure's address.
func sized[T any](v *T) unsafe.Pointer {
	p := unsafe.Pointer(v)
	if argsz := (*uint32)(p); *argsz == 0 {
		*argsz = uint32(unsafe.Sizeof(*v))
	}
	return p
}

// GetInfo returns the properties of the device.
func GetInfo(fd int) (Info, error) {
	var v Info
	err := Ioctl(fd, CallGetInfo, sized(&v))
	return v, err
}

// GetRegion returns the properties of a BAR, 0 to 5.
func GetRegion(fd, index int) (Region, error) {
	v := Region{Index: uint32(index)}
	err := Ioctl(fd, CallGetRegion, sized(&v))
	return v, err
}

// DoPin pins memory as v requests, and stores the results in v and up to len(segments) of the pin's segments in
// segments.
func DoPin(fd int, v *Pin, segments []Segment) error {
	var keep runtime.Pinner
	defer keep.Unpin()
	v.Segs, v.SegCap = array(&keep, segments)
	return Ioctl(fd, CallPin, sized(v))
}

// DoQuery stores the state of pin v.Handle in v, and up to len(segments) of its segments, from number v.SegFirst on, in
// segments.
func DoQuery(fd int, v *Query, segments []Segment) error {
	var keep runtime.Pinner
	defer keep.Unpin()
	v.Segs, v.SegCap = array(&keep, segments)
	return Ioctl(fd, CallQuery, sized(v))
}

// DoPut ends a pin or an allocation.
func DoPut(fd int, handle uint32) error {
	v := Put{Handle: handle}
	return Ioctl(fd, CallPut, sized(&v))
}

// DoAlloc allocates v.Size bytes of coherent memory, and stores the results in v.
func DoAlloc(fd int, v *Alloc) error { return Ioctl(fd, CallAlloc, sized(v)) }

// SetEvent sets the eventfd for a kind of event and, for EventMSI, a vector. The kernel keeps its own reference.
func SetEvent(fd int, kind, index uint32, eventfd int) error {
	v := Event{Kind: kind, Index: index, Eventfd: int32(eventfd)}
	return Ioctl(fd, CallSetEvent, sized(&v))
}

// SetHalt sets the halt list: the register accesses that stop the engine when a pin is revoked. It may be empty.
func SetHalt(fd int, ops []HaltOp) error {
	var keep runtime.Pinner
	defer keep.Unpin()
	var v Halt
	v.Ops, v.N = array(&keep, ops)
	return Ioctl(fd, CallSetHalt, sized(&v))
}

// DoControl performs the operation op (Control.Op). For ControlResume, generation is that of the fence to end; other
// operations ignore it. DoControl returns the fence's current generation, except for ControlUnmask.
func DoControl(fd int, op uint32, generation uint64) (uint64, error) {
	v := Control{Op: op, FenceGen: generation}
	err := Ioctl(fd, CallControl, sized(&v))
	return v.FenceGen, err
}

// array returns the address and the length of a slice, which does not move until keep is unpinned.
func array[T any](keep *runtime.Pinner, s []T) (addr uint64, n uint32) {
	if len(s) == 0 {
		return 0, 0
	}
	keep.Pin(&s[0])
	return uint64(uintptr(unsafe.Pointer(&s[0]))), uint32(len(s))
}
