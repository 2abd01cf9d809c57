// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/kmod/kmodtest/errnos"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// mostAllocations exceeds the number of allocations of any call.
const mostAllocations = 2000

// injector makes the nth allocation of a system call fail (Documentation/fault-injection). It is bound to the thread of
// one test.
type injector struct{ fd int }

// injectable makes all kinds of a thread's kernel allocations subject to failures, and reports whether the kernel
// supports this.
func injectable(t *testing.T) bool {
	t.Helper()
	for file, value := range map[string]string{
		"failslab/ignore-gfp-wait": "N", "failslab/verbose": "0", "fail_page_alloc/verbose": "0", "fail_page_alloc/min-order": "0",
		"fail_page_alloc/ignore-gfp-wait": "N", "fail_page_alloc/ignore-gfp-highmem": "N",
	} {
		err := os.WriteFile("/sys/kernel/debug/"+file, []byte(value), 0)
		if os.IsNotExist(err) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return true
}

func newInjector(t *testing.T) injector {
	t.Helper()
	if !injectable(t) {
		t.Fatal("the kernel has no fault injection")
	}
	uninterrupted(t) // a signal's frame needs memory
	t.Cleanup(func() { debug.SetGCPercent(100) })
	debug.SetGCPercent(-1) // Go's own allocations must not fail
	fd, err := unix.Open("/proc/thread-self/fail-nth", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return injector{fd}
}

// syscall6 is a system call with its arguments.
type syscall6 struct{ trap, a, b, c, d, e, f uintptr }

// do makes the call with its nth allocation failing, and reports whether it made that many.
func (i injector) do(c *syscall6, n int) (result uintptr, errno unix.Errno, injected bool) {
	var left [16]byte
	text := strconv.AppendInt(left[:0], int64(n), 10)
	// Nothing in between may allocate.
	_, _, e1 := unix.RawSyscall6(unix.SYS_PWRITE64, uintptr(i.fd), uintptr(unsafe.Pointer(&left[0])), uintptr(len(text)), 0, 0, 0)
	result, _, errno = unix.RawSyscall6(c.trap, c.a, c.b, c.c, c.d, c.e, c.f)
	left = [16]byte{}
	_, _, e2 := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(i.fd), uintptr(unsafe.Pointer(&left[0])), uintptr(len(left)), 0, 0, 0)
	zero := [1]byte{'0'}
	_, _, e3 := unix.RawSyscall6(unix.SYS_PWRITE64, uintptr(i.fd), uintptr(unsafe.Pointer(&zero[0])), 1, 0, 0, 0)
	if e1 != 0 || e2 != 0 || e3 != 0 {
		panic("fail-nth cannot be written or read")
	}
	return result, errno, bytes.HasPrefix(left[:], []byte("0"))
}

// each makes the call returned by prepare with its first, second, … allocation failing, until it makes no more
// allocations. The call must succeed or fail with an errno accepted by want. undo reverts its effects if it succeeded.
func (i injector) each(t *testing.T, want func(unix.Errno) bool, prepare func() *syscall6, undo func(result uintptr, errno unix.Errno)) {
	t.Helper()
	failed := 0
	for n := 1; n <= mostAllocations; n++ {
		c := prepare()
		result, errno, injected := i.do(c, n)
		if errno != 0 && injected {
			failed++
		}
		if errno != 0 && (!want(errno) || !injected) {
			t.Errorf("with allocation %d failing (%v): %v", n, injected, errno)
		}
		undo(result, errno)
		if !injected {
			t.Logf("%d allocations, %d of them needed", n-1, failed)
			if failed == 0 && want(unix.ENOMEM) {
				t.Error("nothing failed")
			}
			return
		}
	}
	t.Fatalf("more than %d allocations", mostAllocations)
}

// room returns a page outside Go's memory.
func room(t *testing.T) []byte { return anonymous(t, page) }

// ioctl returns a call of the module, with its structure in room.
func ioctl(d *device, nr int, at []byte) *syscall6 {
	return &syscall6{trap: unix.SYS_IOCTL, a: uintptr(d.fd), b: uintptr(uapi.CallGetInfo + nr), c: uintptr(address(at))}
}

// fill writes a structure with its size into room.
func fill[T any](at []byte, nr int, v T) *T {
	p := (*T)(unsafe.Pointer(unsafe.SliceData(at)))
	*p = v
	*(*uint32)(unsafe.Pointer(p)) = uint32(sizes[nr])
	return p
}

// documentedFor returns a function that accepts the documented errnos of a call, by number.
func documentedFor(nr int) func(unix.Errno) bool {
	return func(e unix.Errno) bool { return errnos.Documented(nr, e) }
}

func oneOf(list ...unix.Errno) func(unix.Errno) bool {
	return func(e unix.Errno) bool { return slices.Contains(list, e) }
}

const (
	nrPin      = uapi.CallPin - uapi.CallGetInfo
	nrQuery    = uapi.CallQuery - uapi.CallGetInfo
	nrPut      = uapi.CallPut - uapi.CallGetInfo
	nrAlloc    = uapi.CallAlloc - uapi.CallGetInfo
	nrSetEvent = uapi.CallSetEvent - uapi.CallGetInfo
	nrSetHalt  = uapi.CallSetHalt - uapi.CallGetInfo
	nrControl  = uapi.CallControl - uapi.CallGetInfo
)

// TestInjected makes every allocation in every call fail once. The errno must be documented, and nothing may be left.
func TestInjected(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	run := func(name string, test func(injector, *testing.T, *device)) {
		t.Run(name, func(t *testing.T) { test(newInjector(t), t, d) })
	}
	run("open", injector.opens)
	for _, pages := range []int{1, 4, 600} {
		run("PIN of "+strconv.Itoa(pages)+" pages", func(i injector, t *testing.T, d *device) { i.pins(t, d, pages, true) })
	}
	run("PIN of new memory", func(i injector, t *testing.T, d *device) { i.pins(t, d, 4, false) })
	run("QUERY", injector.queries)
	run("PUT", injector.puts)
	for _, size := range []uint64{page, 1 << 20} {
		run("ALLOC of "+strconv.FormatUint(size, 10), func(i injector, t *testing.T, d *device) { i.allocs(t, d, size) })
	}
	run("mmap", injector.maps)
	run("SET_EVENT", injector.events)
	run("SET_HALT", injector.halts)
	run("revocation", injector.revokes)
	run("CONTROL", injector.controls)
	run("close", injector.closes)
	newScene(t).usable(t)
}

func (i injector) opens(t *testing.T, _ *device) {
	at := room(t)
	copy(at, devicePath+"\x00")
	c := &syscall6{trap: unix.SYS_OPENAT, a: ^uintptr(99), b: uintptr(address(at)), c: unix.O_RDWR | unix.O_CLOEXEC}
	i.each(t, oneOf(unix.ENOMEM), func() *syscall6 { return c }, func(fd uintptr, errno unix.Errno) {
		if errno == 0 {
			unix.Close(int(fd))
		}
	})
}

// pins pins memory that is present, or that the kernel allocates for the pin.
func (i injector) pins(t *testing.T, d *device, pages int, there bool) {
	at := room(t)
	b := anonymous(t, pages*page)
	var p *uapi.Pin
	i.each(t, documentedFor(nrPin), func() *syscall6 {
		if !there {
			call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), uintptr(len(b)), unix.MADV_DONTNEED)
		}
		p = fill(at, nrPin, uapi.Pin{Flags: bothWays, VA: address(b), Size: uint64(len(b))})
		return ioctl(d, nrPin, at)
	}, func(_ uintptr, errno unix.Errno) {
		if errno == 0 {
			d.put(t, p.Handle)
		}
		if n := d.info(t).PinnedBytes; n != 0 {
			t.Fatalf("%d bytes are pinned", n)
		}
	})
}

func (i injector) queries(t *testing.T, d *device) {
	at := room(t)
	p, _ := d.mustPin(t, anonymous(t, 4*page))
	i.each(t, documentedFor(nrQuery), func() *syscall6 {
		fill(at, nrQuery, uapi.Query{Handle: p.Handle})
		return ioctl(d, nrQuery, at)
	}, func(uintptr, unix.Errno) {})
	d.put(t, p.Handle)
}

// puts checks that a PUT needs no memory.
func (i injector) puts(t *testing.T, d *device) {
	at := room(t)
	b := anonymous(t, 4*page)
	i.each(t, oneOf(), func() *syscall6 {
		p, _ := d.mustPin(t, b)
		fill(at, nrPut, uapi.Put{Handle: p.Handle})
		return ioctl(d, nrPut, at)
	}, func(uintptr, unix.Errno) {
		if n := d.info(t).PinnedBytes; n != 0 {
			t.Fatalf("%d bytes are pinned", n)
		}
	})
}

func (i injector) allocs(t *testing.T, d *device, size uint64) {
	at := room(t)
	var a *uapi.Alloc
	i.each(t, documentedFor(nrAlloc), func() *syscall6 {
		a = fill(at, nrAlloc, uapi.Alloc{Size: size})
		return ioctl(d, nrAlloc, at)
	}, func(_ uintptr, errno unix.Errno) {
		if errno == 0 {
			d.put(t, a.Handle)
		}
	})
}

// maps maps a BAR and an allocation, including page tables.
func (i injector) maps(t *testing.T, d *device) {
	r, err := uapi.GetRegion(d.fd, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := uapi.Alloc{Size: 4 * page}
	if err := uapi.DoAlloc(d.fd, &a); err != nil {
		t.Fatal(err)
	}
	for offset, size := range map[uint64]uint64{r.MmapOffset: r.Size, a.MmapOffset: a.Size} {
		c := &syscall6{unix.SYS_MMAP, 0, uintptr(size), unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE, uintptr(d.fd), uintptr(offset)}
		i.each(t, oneOf(unix.ENOMEM), func() *syscall6 { return c }, func(at uintptr, errno unix.Errno) {
			if errno == 0 {
				call(t, "munmap", unix.SYS_MUNMAP, at, uintptr(size))
			}
		})
	}
	d.put(t, a.Handle)
}

func (i injector) events(t *testing.T, d *device) {
	at := room(t)
	e := d.event(t, uapi.EventRevoke)
	i.each(t, documentedFor(nrSetEvent), func() *syscall6 {
		fill(at, nrSetEvent, uapi.Event{Kind: uapi.EventRevoke, Eventfd: int32(e.fd)})
		return ioctl(d, nrSetEvent, at)
	}, func(uintptr, unix.Errno) {
		if err := uapi.SetEvent(d.fd, uapi.EventRevoke, 0, -1); err != nil {
			t.Fatal(err)
		}
	})
}

func (i injector) halts(t *testing.T, d *device) {
	at := room(t)
	ops := room(t)
	*(*uapi.HaltOp)(unsafe.Pointer(unsafe.SliceData(ops))) = uapi.HaltOp{Op: uapi.HaltW32, Offset: eduLiveness, Value: 1}
	i.each(t, documentedFor(nrSetHalt), func() *syscall6 {
		fill(at, nrSetHalt, uapi.Halt{N: 1, Ops: address(ops)})
		return ioctl(d, nrSetHalt, at)
	}, func(uintptr, unix.Errno) {
		if err := uapi.SetHalt(d.fd, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// revokes unmaps pinned memory. The kernel may lack memory for the munmap, but never for the revocation.
func (i injector) revokes(t *testing.T, d *device) {
	var p uapi.Pin
	var b []byte
	i.each(t, oneOf(unix.ENOMEM), func() *syscall6 {
		b = mapPages(t, -1, 0, 4*page, unix.MAP_PRIVATE|unix.MAP_ANON)
		p, _ = d.mustPin(t, b)
		return &syscall6{trap: unix.SYS_MUNMAP, a: uintptr(address(b)), b: uintptr(len(b))}
	}, func(_ uintptr, errno unix.Errno) {
		for began := time.Now(); errno == 0 && d.query(t, p.Handle).State != uapi.PinRevoked; time.Sleep(time.Millisecond) {
			if time.Since(began) > patience {
				t.Fatal("the pin stays")
			}
		}
		unmap(t, b, page)
		d.live(t)
		d.put(t, p.Handle)
	})
}

// controls lifts a fence.
func (i injector) controls(t *testing.T, d *device) {
	at := room(t)
	i.each(t, documentedFor(nrControl), func() *syscall6 {
		b := mapPages(t, -1, 0, page, unix.MAP_PRIVATE|unix.MAP_ANON)
		p, _ := d.mustPin(t, b)
		unmap(t, b, page)
		d.put(t, p.Handle)
		fill(at, nrControl, uapi.Control{Op: uapi.ControlResume, FenceGen: d.info(t).FenceGen})
		return ioctl(d, nrControl, at)
	}, func(uintptr, unix.Errno) { d.live(t) })
}

// closes closes a file with a pin and an allocation.
func (i injector) closes(t *testing.T, d *device) {
	b := anonymous(t, 4*page)
	i.each(t, oneOf(), func() *syscall6 {
		fd, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		(&device{fd}).mustPin(t, b)
		if err := uapi.DoAlloc(fd, &uapi.Alloc{Size: page}); err != nil {
			t.Fatal(err)
		}
		return &syscall6{trap: unix.SYS_CLOSE, a: uintptr(fd)}
	}, func(uintptr, unix.Errno) {
		if n := d.info(t).PinnedBytes; n != 0 {
			t.Fatalf("%d bytes are pinned", n)
		}
		d.live(t)
	})
}
