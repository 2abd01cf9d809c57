// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/kmod/kmodtest/errnos"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// documented is errnos.Documented, but also permits EBADF, because other threads close descriptors.
func documented(nr int, errno unix.Errno) bool {
	return errno == unix.EBADF || errnos.Documented(nr, errno)
}

// sizes are the sizes in bytes of each call's structure in version 1, by the call's number.
var sizes = [...]uint32{64, 32, 64, 56, 16, 40, 24, 24, 24}

// call makes a call with a structure, and reports an undocumented result.
func call[T any](t *thread, fd, nr int, v *T) unix.Errno {
	return t.ioctl(fd, nr, unsafe.Pointer(v))
}

func (t *thread) ioctl(fd, nr int, arg unsafe.Pointer) unix.Errno {
	_, errno := t.failing(unix.SYS_IOCTL, uintptr(fd), uintptr(uapi.CallGetInfo+nr), uintptr(arg), 0, 0, 0)
	if nr >= len(sizes) && errno == unix.ENOTTY { // the call does not exist, or no longer
		return errno
	}
	if !documented(nr, errno) {
		t.wrong("call %d: %v", nr, errno)
	}
	if (errno == unix.ENODEV || errno == unix.EBADF) && t.one(3) { // the function is gone: its successor has another file
		t.openAs(fd-firstDevice, unix.O_RDWR)
	}
	return errno
}

func number(call int) int { return call - uapi.CallGetInfo }

// fd returns a random one of the device's descriptors, which may be closed.
func (t *thread) fd() int { return firstDevice + t.IntN(devices) }

func (t *thread) open() unix.Errno {
	mode := unix.O_RDWR
	if t.one(8) {
		mode = unix.O_RDONLY
	}
	return t.openAs(t.IntN(devices), mode)
}

// openAs opens the device as one of the descriptors, replacing any previous one.
func (t *thread) openAs(i, mode int) unix.Errno {
	if t.one(2) {
		mode |= unix.O_NONBLOCK // requests sharing the device with another user
	}
	fd, err := unix.Open(t.device, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		known := []unix.Errno{unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.EACCES, unix.EINTR, unix.ENOMEM, unix.EMFILE, unix.EBUSY}
		if e := errnoOf(err); !slices.Contains(known, e) {
			t.wrong("open: %v", e)
		}
		return errnoOf(err)
	}
	return t.become(fd, i)
}

// become replaces the device's descriptor i by a copy of fd, and closes fd.
func (t *thread) become(fd, i int) unix.Errno {
	err := unix.Dup3(fd, firstDevice+i, unix.O_CLOEXEC)
	unix.Close(fd)
	return errnoOf(err)
}

func (t *thread) close() unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_CLOSE, uintptr(t.fd()), 0, 0)
	return errno
}

func (t *thread) dup() unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_DUP3, uintptr(t.fd()), uintptr(t.fd()), unix.O_CLOEXEC)
	return errno
}

func (t *thread) info() unix.Errno {
	_, errno := t.infoOf(t.fd())
	return errno
}

func (t *thread) infoOf(fd int) (uapi.Info, unix.Errno) {
	v := uapi.Info{Argsz: sizes[0]}
	errno := call(t, fd, 0, &v)
	if errno == 0 && (v.State > uapi.StateGone || v.PinAlign != page || v.PinnedBytes%page != 0) {
		t.wrong("%+v", v)
	}
	return v, errno
}

func (t *thread) region() unix.Errno {
	v := uapi.Region{Argsz: sizes[1], Index: t.Uint32N(8)}
	return call(t, t.fd(), number(uapi.CallGetRegion), &v)
}

func (t *thread) pinMemory() unix.Errno {
	most := 4
	if t.one(4) {
		most = t.memory.pages
	}
	return t.pin(t.span(t.memory, most))
}

func (t *thread) pinDriver() unix.Errno { return t.pin(t.span(t.driver, t.driver.pages)) }

func (t *thread) pinHuge() unix.Errno {
	if t.one(4) {
		return t.pin(t.huge.at(t.IntN(t.huge.slots)), hugePage)
	}
	return t.pin(t.span(t.huge, 64))
}

// pinView pins part of the area with mappings of tegra_p2p.
func (t *thread) pinView() unix.Errno { return t.pin(t.span(t.views, 4)) }

// segmentRoom returns an address to which the kernel may write segments, in permanent or changing memory.
func (t *thread) segmentRoom() uint64 {
	if t.one(4) {
		addr, _ := t.span(t.memory, 1)
		return uint64(addr)
	}
	return uint64(t.room)
}

func (t *thread) pin(addr, size uintptr) unix.Errno {
	v := uapi.Pin{
		Argsz: sizes[2], Flags: 1 + t.Uint32N(3), VA: uint64(addr), Size: uint64(size), Cookie: uint64(addr),
		Segs: t.segmentRoom(), SegCap: t.Uint32N(5),
	}
	if t.one(8) {
		v.Flags |= uapi.PinExpectWB
	}
	if t.one(64) {
		v.Flags, v.VA = t.Uint32N(32), v.VA+t.Uint64N(2*page)
	}
	if t.one(64) {
		v.Size = t.Uint64() >> t.IntN(64)
	}
	fd := t.fd()
	errno := call(t, fd, number(uapi.CallPin), &v)
	if errno != 0 {
		return errno
	}
	t.keep(&held{fd, v.Handle, v.MmapOffset, v.Size, true})
	if v.Segs == uint64(t.room) {
		t.segments(v)
	}
	return 0
}

// segments checks the segments that PIN returned. There are none if the pin was revoked before PIN returned.
func (t *thread) segments(v uapi.Pin) {
	var sum uint64
	all := unsafe.Slice((*uapi.Segment)(unsafe.Pointer(at(t.room))), 8)
	for _, s := range all[:min(v.NSegs, v.SegCap)] {
		if s.IOVA%page != 0 || s.Len == 0 || s.Len%page != 0 {
			t.wrong("segment %+v of %+v", s, v)
		}
		sum += s.Len
	}
	if v.NSegs > 0 && v.NSegs <= v.SegCap && sum != v.Size {
		t.wrong("segments of %d bytes for %+v", sum, v)
	}
}

func (t *thread) keep(h *held) { t.handles[t.IntN(len(t.handles))].Store(h) }

// handle returns a handle that the module once returned, sometimes with another file, or a random one.
func (t *thread) handle() (h held) {
	for range 4 {
		if p := t.handles[t.IntN(len(t.handles))].Load(); p != nil {
			h = *p
			break
		}
	}
	if t.one(8) {
		h.fd = t.fd()
	}
	if t.one(16) || h.fd == 0 {
		h.fd, h.handle = t.fd(), t.Uint32N(200)
	}
	return h
}

func (t *thread) query() unix.Errno {
	h := t.handle()
	v := uapi.Query{Argsz: sizes[3], Handle: h.handle, Segs: t.segmentRoom(), SegCap: t.Uint32N(5), SegFirst: t.Uint32N(3)}
	errno := call(t, h.fd, number(uapi.CallQuery), &v)
	if errno != 0 {
		return errno
	}
	live := v.State == uapi.PinLive && v.Reason == uapi.ReasonNone
	revoked := v.State == uapi.PinRevoked && v.Reason != uapi.ReasonNone && v.Reason <= uapi.ReasonUnplug && v.NSegs == 0
	if !live && !revoked {
		t.wrong("%+v", v)
	}
	return 0
}

func (t *thread) put() unix.Errno {
	h := t.handle()
	v := uapi.Put{Argsz: sizes[4], Handle: h.handle}
	errno := call(t, h.fd, number(uapi.CallPut), &v)
	if (errno == 0 || errno == unix.ENOENT) && !t.one(8) { // occasionally a second PUT follows
		for i := range t.handles {
			if p := t.handles[i].Load(); p != nil && p.fd == h.fd && p.handle == h.handle {
				t.handles[i].CompareAndSwap(p, nil)
			}
		}
	}
	return errno
}

func (t *thread) alloc() unix.Errno {
	v := uapi.Alloc{Argsz: sizes[5], Size: page * (1 + t.Uint64N(8))}
	if t.one(16) {
		v.Size = page * t.Uint64N(1<<16)
	}
	fd := t.fd()
	errno := call(t, fd, number(uapi.CallAlloc), &v)
	if errno == 0 {
		t.keep(&held{fd, v.Handle, v.MmapOffset, v.Size, false})
	}
	return errno
}

// event sets an eventfd, half of the time one that the next event makes full (eventfd(2)). In a quarter of the calls it
// sets an arbitrary descriptor instead.
func (t *thread) event() unix.Errno {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil && t.one(2) {
		_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-2))
	}
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(fd)
	v := uapi.Event{Argsz: sizes[6], Kind: t.Uint32N(4), Index: t.Uint32N(2), Eventfd: int32(fd)}
	if t.one(4) {
		v.Eventfd = int32(t.IntN(20) - 1)
	}
	return call(t, t.fd(), number(uapi.CallSetEvent), &v)
}

// halt sets a halt list of random accesses to edu's liveness register. Its length may be invalid.
func (t *thread) halt() unix.Errno {
	const liveness = 4
	ops := unsafe.Slice((*uapi.HaltOp)(unsafe.Pointer(at(t.room))), uapi.HaltOps)
	for i := range ops {
		ops[i] = uapi.HaltOp{Op: uapi.HaltW32, Offset: liveness, Value: t.Uint64N(256)}
		if t.one(4) {
			ops[i].Op, ops[i].Mask = uapi.HaltPoll32, 0xff
		}
	}
	v := uapi.Halt{Argsz: sizes[7], Ops: uint64(t.room), N: t.Uint32N(uapi.HaltOps + 2)}
	return call(t, t.fd(), number(uapi.CallSetHalt), &v)
}

func (t *thread) control(fd int, op uint32, gen uint64) unix.Errno {
	v := uapi.Control{Argsz: sizes[8], Op: op, FenceGen: gen}
	return call(t, fd, number(uapi.CallControl), &v)
}

func (t *thread) resume() unix.Errno {
	fd := t.fd()
	i, errno := t.infoOf(fd)
	if errno != 0 || i.State != uapi.StateFenced {
		return errno
	}
	return t.control(fd, uapi.ControlResume, i.FenceGen)
}

func (t *thread) fence() unix.Errno { return t.control(t.fd(), uapi.ControlFence, 0) }
func (t *thread) reset() unix.Errno { return t.control(t.fd(), uapi.ControlReset, 0) }

// interesting lists numbers that are often handled wrongly.
var interesting = [...]uint64{
	0, 1, 3, 4, 7, page - 1, page, page + 1, 1 << 20, 1 << 30, 1<<30 + page, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 40, 1 << 63,
	^uint64(0) - page + 1, ^uint64(0),
}

func (t *thread) number() uint64 {
	switch t.IntN(4) {
	case 0:
		return interesting[t.IntN(len(interesting))]
	case 1:
		return t.Uint64N(100)
	case 2:
		addr, _ := t.span(t.memory, 1)
		return uint64(addr)
	}
	return t.Uint64() >> t.IntN(64)
}

// raw makes a random call with random arguments, but never sets a halt list, which would write random registers.
func (t *thread) raw() unix.Errno {
	nr := t.IntN(len(sizes) + 3)
	if nr == number(uapi.CallSetHalt) {
		nr = number(uapi.CallPin)
	}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(at(t.room+8*page))), 640)
	for i := range 16 {
		words[i] = t.number()
	}
	argsz := uint64(t.Uint32N(5000))
	if !t.one(8) {
		argsz = uint64(sizes[nr%len(sizes)] + 8*t.Uint32N(2))
	}
	words[0] = argsz | t.Uint64N(4)<<32
	arg := unsafe.Pointer(&words[0])
	if t.one(16) { // across the end of memory that may be unmapped
		addr, _ := t.span(t.memory, 1)
		arg = unsafe.Pointer(at(addr + page - uintptr(4*t.IntN(16))))
	}
	return t.ioctl(t.fd(), nr, arg)
}

func (h held) String() string { return fmt.Sprintf("handle %d of descriptor %d", h.handle, h.fd) }
