// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// sizes are the sizes of version 1 of each call's structure, by number.
var sizes = []int{64, 32, 64, 56, 16, 40, 24, 24, 24}

// sizeNow returns the current size of the structure.
func sizeNow(nr int) int {
	if uapi.CallGetInfo+nr == uapi.CallGetInfo {
		return int(unsafe.Sizeof(uapi.Info{}))
	}
	return sizes[nr]
}

func raw(fd int, nr int, b []byte) error {
	return uapi.Ioctl(fd, uint(uapi.CallGetInfo+nr), unsafe.Pointer(unsafe.SliceData(b)))
}

// TestEveryCall checks the common properties of all calls.
func TestEveryCall(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	for nr, size := range sizes {
		with := func(n, argsz int) []byte {
			b := make([]byte, n)
			binary.NativeEndian.PutUint32(b, uint32(argsz))
			return b
		}
		name := func(what string) string { return fmt.Sprint(what, " of call ", nr) }
		wantErrno(t, name("short argsz"), raw(d.fd, nr, with(size, size-4)), unix.EINVAL)
		wantErrno(t, name("no argsz"), raw(d.fd, nr, with(size, 0)), unix.EINVAL)
		now := sizeNow(nr)
		dirty := with(now+8, now+8)
		dirty[now+3] = 1
		wantErrno(t, name("bytes of the future"), raw(d.fd, nr, dirty), unix.E2BIG)
		wantErrno(t, name("huge argsz"), raw(d.fd, nr, with(size, 1<<20)), unix.E2BIG)
		flag := with(size, size)
		flag[7] = 0x80
		wantErrno(t, name("unknown flag"), raw(d.fd, nr, flag), unix.EINVAL)
		wantErrno(t, name("nil"), uapi.Ioctl(d.fd, uint(uapi.CallGetInfo+nr), nil), unix.EFAULT)
	}
	larger := make([]byte, 96) // from a newer program, with zeros
	binary.NativeEndian.PutUint32(larger, 96)
	if err := raw(d.fd, 0, larger); err != nil || !bytes.Equal(larger[sizeNow(0):], make([]byte, 96-sizeNow(0))) {
		t.Errorf("GET_INFO with room: %v % x", err, larger)
	}
	older := bytes.Repeat([]byte{0x5a}, 96) // bytes after version 1's size must not change
	binary.NativeEndian.PutUint64(older, 64)
	if err := raw(d.fd, 0, older); err != nil || older[64] != 0x5a || binary.NativeEndian.Uint32(older[8:]) != uapi.APIVersion {
		t.Errorf("GET_INFO of version 1: %v % x", err, older)
	}
	for _, call := range []uint{uapi.CallGetInfo + 9, uapi.CallGetInfo + 10, uapi.CallGetInfo + 11, 0, 0xbd00 | 1<<30, 0x4008bd02} {
		wantErrno(t, "unknown call", uapi.Ioctl(d.fd, call, unsafe.Pointer(&larger[0])), unix.ENOTTY)
	}
}

func TestBadPin(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	good := anonymous(t, 4*page)
	readOnly := anonymous(t, page)
	if err := unix.Mprotect(readOnly, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	noAccess := anonymous(t, page)
	if err := unix.Mprotect(noAccess, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	twoVMAs := anonymous(t, 2*page)
	if err := unix.Mprotect(twoVMAs[page:], unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC); err != nil {
		t.Fatal(err)
	}
	hole := anonymous(t, 2*page)
	unmap(t, hole[page:], 0)
	bar := d.mmap(t, 0, page)
	defer func() { _ = unix.Munmap(bar) }()
	va := address(good)
	for name, c := range map[string]struct {
		flags    uint32
		va, size uint64
		want     unix.Errno
	}{
		"no direction":          {0, va, page, unix.EINVAL},
		"both expectations":     {bothWays | uapi.PinExpectWB | uapi.PinExpectWC, va, page, unix.EINVAL},
		"unaligned address":     {bothWays, va + 8, page, unix.EINVAL},
		"unaligned size":        {bothWays, va, page + 8, unix.EINVAL},
		"zero":                  {bothWays, va, 0, unix.EINVAL},
		"wraps":                 {bothWays, ^uint64(0) - page + 1, 2 * page, unix.EINVAL},
		"wraps by its size":     {bothWays, va, ^uint64(0) - page + 1, unix.EINVAL},
		"huge":                  {bothWays, va, 1<<30 + page, unix.E2BIG},
		"nobody's":              {bothWays, page, page, unix.EFAULT},
		"the kernel's":          {bothWays, 0xffff000000000000, page, unix.EFAULT},
		"past its end":          {bothWays, address(hole), 2 * page, unix.EFAULT},
		"device memory":         {bothWays, address(bar), page, unix.EFAULT},
		"read-only, to write":   {uapi.PinFromDevice, address(readOnly), page, unix.EFAULT},
		"no access":             {uapi.PinToDevice, address(noAccess), page, unix.EFAULT},
		"two VMAs":              {bothWays, address(twoVMAs), 2 * page, unix.EFAULT},
		"not write-combined":    {bothWays | uapi.PinExpectWC, va, page, unix.EMEDIUMTYPE},
		"segments nobody holds": {bothWays, va, page, unix.EFAULT},
	} {
		p := uapi.Pin{Flags: c.flags, VA: c.va, Size: c.size}
		if name == "segments nobody holds" {
			p.Argsz, p.Segs, p.SegCap = 64, page, 1
			wantErrno(t, name, uapi.Ioctl(d.fd, uapi.CallPin, unsafe.Pointer(&p)), c.want)
			continue
		}
		wantErrno(t, name, uapi.DoPin(d.fd, &p, nil), c.want)
	}
	if _, _, err := d.pin(readOnly, uapi.PinToDevice); err != nil {
		t.Errorf("read-only, to read: %v", err)
	}
	testOverlap(t, d, good)
}

func testOverlap(t *testing.T, d *device, b []byte) {
	p, _ := d.mustPin(t, b[page:3*page])
	for name, r := range map[string][]byte{"same": b[page : 3*page], "begin": b[:2*page], "end": b[2*page:], "within": b[page : 2*page], "around": b} {
		_, _, err := d.pin(r, bothWays)
		wantErrno(t, "overlap: "+name, err, unix.EBUSY)
	}
	next, _ := d.mustPin(t, b[:page])
	d.put(t, next.Handle)
	d.put(t, p.Handle)
	whole, _ := d.mustPin(t, b)
	d.put(t, whole.Handle)
}

func TestBadCalls(t *testing.T) {
	noLeak(t)
	d, other := open(t).live(t), open(t)
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(efd)
	region := func(i int) error { _, err := uapi.GetRegion(d.fd, i); return err }
	control := func(op uint32, gen uint64) error { _, err := uapi.DoControl(d.fd, op, gen); return err }
	halt := func(op uapi.HaltOp) error { return uapi.SetHalt(d.fd, []uapi.HaltOp{op}) }
	wantErrno(t, "BAR 6", region(6), unix.EINVAL)
	wantErrno(t, "QUERY of nothing", uapi.DoQuery(d.fd, &uapi.Query{Handle: 77}, nil), unix.ENOENT)
	wantErrno(t, "PUT of nothing", uapi.DoPut(d.fd, 0), unix.ENOENT)
	wantErrno(t, "ALLOC of nothing", uapi.DoAlloc(d.fd, &uapi.Alloc{}), unix.EINVAL)
	wantErrno(t, "ALLOC of half a page", uapi.DoAlloc(d.fd, &uapi.Alloc{Size: 100}), unix.EINVAL)
	wantErrno(t, "ALLOC with padding", uapi.DoAlloc(d.fd, &uapi.Alloc{Size: page, Pad: 1}), unix.EINVAL)
	wantErrno(t, "huge ALLOC", uapi.DoAlloc(d.fd, &uapi.Alloc{Size: 1 << 40}), unix.E2BIG)
	wantErrno(t, "ALLOC for frames", uapi.DoAlloc(d.fd, &uapi.Alloc{Size: 64<<20 + page}), unix.E2BIG)
	wantErrno(t, "event of another kind", uapi.SetEvent(d.fd, 3, 0, efd), unix.EINVAL)
	wantErrno(t, "vector 1", uapi.SetEvent(d.fd, uapi.EventMSI, 1, efd), unix.EINVAL)
	wantErrno(t, "second error event", uapi.SetEvent(d.fd, uapi.EventError, 1, efd), unix.EINVAL)
	wantErrno(t, "closed eventfd", uapi.SetEvent(d.fd, uapi.EventMSI, 0, 999), unix.EBADF)
	wantErrno(t, "eventfd -2", uapi.SetEvent(d.fd, uapi.EventMSI, 0, -2), unix.EINVAL)
	wantErrno(t, "device as eventfd", uapi.SetEvent(d.fd, uapi.EventMSI, 0, d.fd), unix.EINVAL)
	wantErrno(t, "event", uapi.SetEvent(d.fd, uapi.EventMSI, 0, efd), 0)
	wantErrno(t, "vector of another", uapi.SetEvent(other.fd, uapi.EventMSI, 0, efd), unix.EBUSY)
	wantErrno(t, "operation 4", control(4, 0), unix.EINVAL)
	wantErrno(t, "UNMASK of messages", control(uapi.ControlUnmask, 0), unix.EOPNOTSUPP)
	wantErrno(t, "RESUME of the future", control(uapi.ControlResume, 1<<60), unix.EAGAIN)
	wantErrno(t, "RESET without FLR", control(uapi.ControlReset, 0), unix.EOPNOTSUPP)
	wantErrno(t, "FENCE", control(uapi.ControlFence, 0), 0)
	wantErrno(t, "PIN behind FENCE", func() error { _, _, err := d.pin(anonymous(t, page), bothWays); return err }(), unix.ESTALE)
	d.live(t)
	wantErrno(t, "17 halts", uapi.SetHalt(d.fd, make([]uapi.HaltOp, 17)), unix.EINVAL)
	for name, op := range map[string]uapi.HaltOp{
		"operation": {Op: 3}, "BAR": {BAR: 6}, "missing BAR": {BAR: 1}, "offset": {Offset: 1 << 20}, "wrapping offset": {Offset: ^uint64(3)},
		"unaligned": {Offset: 2}, "unaligned W64": {Op: uapi.HaltW64, Offset: 4}, "value": {Value: 1 << 32}, "mask of W32": {Mask: 1},
		"no mask": {Op: uapi.HaltPoll32}, "value outside the mask": {Op: uapi.HaltPoll32, Value: 2, Mask: 1}, "W64 at the end": {Op: uapi.HaltW64, Offset: 1<<20 - 4},
	} {
		wantErrno(t, "halt: "+name, halt(op), unix.EINVAL)
	}
	wantErrno(t, "halt", halt(uapi.HaltOp{Offset: 1<<20 - 4}), 0)
	wantErrno(t, "halt of another", uapi.SetHalt(other.fd, []uapi.HaltOp{{}}), unix.EBUSY)
}

func TestBadMmap(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	b := anonymous(t, 2*page)
	p, _ := d.mustPin(t, b)
	a := uapi.Alloc{Size: 2 * page}
	if err := uapi.DoAlloc(d.fd, &a); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		offset uint64
		size   int
		flags  int
	}{
		"private":            {0, page, unix.MAP_PRIVATE},
		"past the BAR":       {1 << 20, page, unix.MAP_SHARED},
		"over the BAR's end": {1<<20 - page, 2 * page, unix.MAP_SHARED},
		"missing BAR":        {1 << 40, page, unix.MAP_SHARED},
		"no handle":          {8 << 40, page, unix.MAP_SHARED},
		"unknown handle":     {5000 << 40, page, unix.MAP_SHARED},
		"part of an ALLOC":   {a.MmapOffset, page, unix.MAP_SHARED},
		"tail of an ALLOC":   {a.MmapOffset + page, page, unix.MAP_SHARED},
		"more than an ALLOC": {a.MmapOffset, 3 * page, unix.MAP_SHARED},
	} {
		_, err := unix.Mmap(d.fd, int64(c.offset), c.size, unix.PROT_READ, c.flags)
		wantErrno(t, name, err, unix.EINVAL)
	}
	_, err := unix.Mmap(d.fd, int64(p.MmapOffset), 2*page, unix.PROT_READ, unix.MAP_SHARED)
	wantErrno(t, "anonymous memory", err, unix.EOPNOTSUPP)
	d.put(t, a.Handle)
	d.put(t, p.Handle)
}

// TestLimits creates the maximum number of pins.
func TestLimits(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	limit := int(d.info(t).MaxPins)
	b := anonymous(t, (limit+1)*page)
	handles := make([]uint32, limit)
	for i := range handles {
		p, _ := d.mustPin(t, b[i*page:(i+1)*page])
		handles[i] = p.Handle
	}
	_, _, err := d.pin(b[limit*page:], bothWays)
	wantErrno(t, "one pin too many", err, unix.ENOSPC)
	wantErrno(t, "one allocation too many", uapi.DoAlloc(d.fd, &uapi.Alloc{Size: page}), unix.ENOSPC)
	for _, h := range handles {
		d.put(t, h)
	}
}

// TestMemlock lets a process without CAP_IPC_LOCK, but with an open device, try to pin more than RLIMIT_MEMLOCK.
func TestMemlock(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	c := exec.Command("/guest.test")
	c.Env = []string{"GUEST_ROLE=limit"}
	c.ExtraFiles = []*os.File{os.Stdin, file(t, d.fd)}
	defer c.ExtraFiles[1].Close()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func overLimit() {
	const limit = 8
	must(unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit * page, Max: limit * page}))
	b, err := unix.Mmap(-1, 0, (limit+3)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(err)
	d := &device{4}
	most, _, err := d.pin(b[page:(1+limit)*page], bothWays)
	must(err)
	refused := func(what string, err error) {
		if !errors.Is(err, unix.ENOMEM) {
			must(fmt.Errorf("%s above RLIMIT_MEMLOCK: %v, want %w", what, err, unix.ENOMEM))
		}
	}
	_, _, err = d.pin(b[(2+limit)*page:], bothWays)
	refused("PIN", err)
	refused("ALLOC", uapi.DoAlloc(d.fd, &uapi.Alloc{Size: page}))
	must(uapi.DoPut(d.fd, most.Handle))
	again, _, err := d.pin(b[(2+limit)*page:], bothWays)
	must(err)
	must(uapi.DoPut(d.fd, again.Handle))
}
