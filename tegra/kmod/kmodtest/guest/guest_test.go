// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

const page = 4096

// slow is true on an instrumented kernel, where nothing is as fast as edu's DMA, and deferred work is slow.
var slow = os.Getenv("GUEST_SLOW") != ""

// patience is the time limit for expected events. The machine may be suspended meanwhile, and resume with all its timers
// due.
const patience = 2 * time.Minute

// The tested function and its device file: edu's, unless $GUEST_FUNCTION and $GUEST_DEVICE name others.
var (
	function   = cmp.Or(os.Getenv("GUEST_FUNCTION"), "0000:01:00.0")
	pciDevice  = "/sys/bus/pci/devices/" + function + "/"
	devicePath = cmp.Or(os.Getenv("GUEST_DEVICE"), "/dev/tegra_p2p0")
)

func TestMain(m *testing.M) {
	role := os.Getenv("GUEST_ROLE")
	if os.Getpid() == 1 {
		role = "second kernel"
	}
	if role != "" {
		roles[role]()
		os.Exit(0)
	}
	if os.Getenv("GUEST") == "" {
		fmt.Println("tests of the kernel module: they run inside the virtual Jetson only; go test ./tegra/kmod/kmodtest runs them there")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nvp2p reports whether the module pins through nv-p2p.
func nvp2p(t testing.TB, d *device) bool { return d.info(t).Flags&uapi.InfoNVP2P != 0 }

// device is an open device file.
type device struct{ fd int }

func open(t testing.TB) *device {
	t.Helper()
	fd, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{fd}
	t.Cleanup(d.close)
	return d
}

func (d *device) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
	d.fd = -1
}

func (d *device) info(t testing.TB) uapi.Info {
	t.Helper()
	info, err := uapi.GetInfo(d.fd)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// live lifts a fence left by probe or an earlier test, or caused by other processes' revocations.
func (d *device) live(t testing.TB) *device {
	t.Helper()
	for {
		i := d.info(t)
		if i.State != uapi.StateFenced {
			return d
		}
		if _, err := uapi.DoControl(d.fd, uapi.ControlResume, i.FenceGen); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
	}
}

const bothWays = uapi.PinToDevice | uapi.PinFromDevice

func (d *device) pin(b []byte, flags uint32) (uapi.Pin, []uapi.Segment, error) {
	segs := make([]uapi.Segment, 8)
	p := uapi.Pin{Flags: flags, VA: address(b), Size: uint64(len(b)), Cookie: 0xc0ffee}
	err := uapi.DoPin(d.fd, &p, segs)
	return p, segs[:min(len(segs), int(p.NSegs))], err
}

func (d *device) mustPin(t testing.TB, b []byte) (uapi.Pin, uint64) {
	t.Helper()
	p, segs, err := d.pin(b, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	return p, segs[0].IOVA
}

func (d *device) query(t testing.TB, handle uint32) uapi.Query {
	t.Helper()
	q := uapi.Query{Handle: handle}
	if err := uapi.DoQuery(d.fd, &q, nil); err != nil {
		t.Fatal(err)
	}
	return q
}

func (d *device) put(t testing.TB, handle uint32) {
	t.Helper()
	if err := uapi.DoPut(d.fd, handle); err != nil {
		t.Fatal(err)
	}
}

func (d *device) mmap(t testing.TB, offset, size uint64) []byte {
	t.Helper()
	b, err := unix.Mmap(d.fd, int64(offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// event sets a new eventfd.
func (d *device) event(t testing.TB, kind uint32) *event {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := uapi.SetEvent(d.fd, kind, 0, fd); err != nil {
		t.Fatal(err)
	}
	return &event{fd}
}

type event struct{ fd int }

// wait waits for the event and returns how often it came.
func (e *event) wait(t testing.TB) uint64 {
	t.Helper()
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	}
	if n != 1 {
		t.Fatalf("no event within %v: %v", patience, err)
	}
	return e.count()
}

func (e *event) count() uint64 {
	b := make([]byte, 8)
	if _, err := unix.Read(e.fd, b); err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b)
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// memory is shared memory that outlives its mapping, so that the device's effects on its pages can still be seen. Its
// bytes follow a page of the same mapping, because nv-p2p takes a change that ends at the start of a pin for a change of
// the pin.
type memory struct {
	fd    int
	bytes []byte // the pinned mapping
	pages []byte // another mapping
}

func newMemory(t testing.TB, size int) *memory {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, int64(page+size)); err != nil {
		t.Fatal(err)
	}
	m := &memory{fd: fd, bytes: mapMemfd(t, fd, size), pages: mapMemfd(t, fd, size)}
	for i := range m.bytes {
		m.bytes[i] = pattern(i)
	}
	t.Cleanup(func() { m.free(t) })
	return m
}

func (m *memory) free(t testing.TB) {
	if m.fd < 0 {
		return
	}
	unix.Close(m.fd)
	m.fd = -1
	unmap(t, m.pages, page)
	unmap(t, m.bytes, page) // the rest of it
}

// unmap unmaps b and the bytes before it.
func unmap(t testing.TB, b []byte, before int) {
	t.Helper()
	if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(address(b))-uintptr(before), uintptr(len(b)+before), 0); errno != 0 {
		t.Fatal(errno)
	}
}

func pattern(i int) byte { return byte(i*7 + i>>8) }

func mapMemfd(t testing.TB, fd, size int) []byte {
	t.Helper()
	return mapPages(t, fd, 0, size, unix.MAP_SHARED)
}

// mapPages maps a page and size bytes after it, and returns the latter. It does not use package unix's Mmap, which keeps
// a list of its mappings.
func mapPages(t testing.TB, fd int, offset uintptr, size, flags int) []byte {
	t.Helper()
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(page+size), unix.PROT_READ|unix.PROT_WRITE,
		uintptr(flags|unix.MAP_POPULATE), uintptr(fd), offset)
	if errno != 0 {
		t.Fatal(errno)
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), page+size)[page:]
}

// check reports whether the pages still have the content from newMemory, unless the device wrote before the revocation.
func (m *memory) check(t testing.TB, inFlight bool) {
	t.Helper()
	if !inFlight {
		return
	}
	for i, v := range m.pages {
		if v != pattern(i) {
			t.Fatalf("byte %d was written after the revocation: %#x", i, v)
		}
	}
}

func anonymous(t testing.TB, size int) []byte {
	t.Helper()
	b := mapPages(t, -1, 0, size, unix.MAP_PRIVATE|unix.MAP_ANON)
	t.Cleanup(func() { unmap(t, b, page) })
	return b
}

// uninterrupted keeps the signals of Go's scheduler from the test's thread until the test ends: a call that one of them
// interrupts fails with EINTR, after it may have used up what the test prepared for it.
func uninterrupted(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var old, urgent unix.Sigset_t
	urgent.Val[0] = 1 << (unix.SIGURG - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &urgent, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) })
}

func wantErrno(t testing.TB, what string, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) && (err != nil || want != 0) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// slab returns the number of live objects in one of the kernel's caches. KASAN retains freed ones until the cache is
// shrunk.
func slab(t testing.TB, name string) int {
	t.Helper()
	if err := os.WriteFile("/sys/kernel/slab/"+name+"/shrink", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == name {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no cache %s in /proc/slabinfo", name)
	return 0
}

// counts has the resources that a test must not leak.
type counts struct{ pins, addressSpaces, pageTables, pinnedKiB int }

func count(t testing.TB) counts {
	c := counts{pins: slab(t, "tegra_p2p_pin"), addressSpaces: slab(t, "mm_struct")}
	if b, err := os.ReadFile("/sys/module/nvp2p/parameters/tables"); err == nil {
		c.pageTables, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, pinned, _ := strings.Cut(string(status), "VmPin:")
	if _, err := fmt.Sscan(pinned, &c.pinnedKiB); err != nil {
		t.Fatal(err)
	}
	return c
}

// noLeak checks at the end of a test that the kernel has no more pins and address spaces than before.
func noLeak(t *testing.T) {
	t.Helper()
	before := count(t)
	t.Cleanup(func() {
		var after counts
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			after = count(t)
			if after.pins <= before.pins && after.addressSpaces <= before.addressSpaces &&
				after.pageTables <= before.pageTables && after.pinnedKiB <= before.pinnedKiB {
				return
			}
		}
		t.Errorf("left over: %+v; before: %+v", after, before)
	})
}
