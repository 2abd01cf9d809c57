// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// ownedFile belongs to root; everybody may read it.
const (
	ownedFile = "/tmp/owned"
	ownedText = "root's, and nobody else may write this\n"
)

// A kind of memory, and the expected results of PIN.
type kind struct {
	name string
	make func(t *testing.T) []byte
	to   unix.Errno // result of PIN for the device to read
	from unix.Errno // result of PIN for the device to write
	// private means that a write would make a private copy for the caller: nv-p2p makes it, regardless of the direction.
	private bool
	// driver means that the pages are a driver's: such pins can be mapped.
	driver bool
}

// readOnly returns a kind of memory that the caller may only read.
func readOnly(name string, make func(t *testing.T) []byte) kind {
	return kind{name: name, make: make, from: unix.EFAULT}
}

// refused returns a kind of memory that cannot be pinned.
func refused(name string, make func(t *testing.T) []byte) kind {
	return kind{name: name, make: make, to: unix.EFAULT, from: unix.EFAULT}
}

const kindSize = 4 * page

// kinds returns all kinds. Those that crash a faulty module come last.
func kinds() []kind {
	private, shared := unix.MAP_PRIVATE|unix.MAP_ANON, unix.MAP_SHARED|unix.MAP_ANON
	ofFile := func(prot, flags int) func(t *testing.T) []byte {
		return func(t *testing.T) []byte { return mapping(t, owned(t), kindSize, prot, flags) }
	}
	ofMemory := func(prot, flags int) func(t *testing.T) []byte {
		return func(t *testing.T) []byte { return mapping(t, -1, kindSize, prot, flags) }
	}
	ofMemfd := func(prot, flags int) func(t *testing.T) []byte {
		return func(t *testing.T) []byte { return mapping(t, memfd(t, kindSize, 0), kindSize, prot, flags) }
	}
	ofDriver := func(prot int) func(t *testing.T) []byte {
		return func(t *testing.T) []byte { return mapping(t, hostmem(t), kindSize, prot, unix.MAP_SHARED) }
	}
	driver := func(k kind) kind { k.driver = true; return k }
	alone := func(k kind) kind { k.private = true; return k }
	return []kind{
		{name: "anonymous", make: func(t *testing.T) []byte { return anonymous(t, kindSize) }},
		{name: "untouched", make: ofMemory(readWrite, private)},
		alone(readOnly("zero page", ofMemory(unix.PROT_READ, private))),
		{name: "shared anonymous", make: ofMemory(readWrite, shared)},
		{name: "memfd", make: ofMemfd(readWrite, unix.MAP_SHARED)},
		{name: "private memfd", make: ofMemfd(readWrite, unix.MAP_PRIVATE)},
		readOnly("memfd for reading", ofMemfd(unix.PROT_READ, unix.MAP_SHARED)),
		alone(readOnly("sealed memfd", sealed)),
		readOnly("read-only file", ofFile(unix.PROT_READ, unix.MAP_SHARED)),
		alone(readOnly("private read-only file", ofFile(unix.PROT_READ, unix.MAP_PRIVATE))),
		{name: "private file", make: ofFile(readWrite, unix.MAP_PRIVATE)},
		refused("FUSE file", ofFUSE(unix.O_RDWR, readWrite, unix.MAP_SHARED)),
		{name: "private FUSE file", make: ofFUSE(unix.O_RDONLY, readWrite, unix.MAP_PRIVATE)},
		readOnly("FUSE file for reading", ofFUSE(unix.O_RDWR, unix.PROT_READ, unix.MAP_SHARED)),
		alone(readOnly("vDSO", vdso)),
		{name: "merged", make: merged},
		{name: "transparent huge page", make: transparent},
		refused("userfaultfd", func(t *testing.T) []byte { b, _ := userfault(t, 1); return b }),
		refused("secretmem", secret),
		driver(kind{name: "driver's", make: ofDriver(readWrite)}),
		driver(readOnly("driver's for reading", ofDriver(unix.PROT_READ))),
		{name: "hugetlb", make: func(t *testing.T) []byte { return hugetlb(t)[:kindSize] }},
	}
}

// TestKinds pins memory of every kind in every direction, as nobody, and maps the pins.
func TestKinds(t *testing.T) {
	asRoot(t, ownedFile, strings.Repeat(ownedText, kindSize/len(ownedText)+1))
	asRoot(t, "/proc/sys/vm/nr_hugepages", "4")
	asRoot(t, "/sys/kernel/mm/transparent_hugepage/enabled", "always") // not the default on machines with little memory
	asRoot(t, "/sys/kernel/mm/ksm/pages_to_scan", "2000")
	letIn(t, ksmRun)
	letIn(t, "/dev/hostmem")
	fuse(t)
	asNobody(t, func(t *testing.T, d *device) {
		for _, k := range kinds() {
			t.Run(k.name, func(t *testing.T) {
				b := k.make(t)
				d.pinKind(t, k, b, uapi.PinToDevice, k.to)
				d.pinKind(t, k, b, uapi.PinFromDevice, k.from)
				d.pinKind(t, k, b, bothWays, k.from)
			})
		}
	})
	asRoot(t, ksmRun, "2")
	asRoot(t, "/proc/sys/vm/nr_hugepages", "0")
}

// pinKind pins and maps memory of a kind. nv-p2p's get_pages has no direction, and always writes.
func (d *device) pinKind(t *testing.T, k kind, b []byte, flags uint32, want unix.Errno) {
	t.Helper()
	if nvp2p(t, d) && !k.private {
		want = k.from
	}
	p, _, err := d.live(t).pin(b, flags)
	wantErrno(t, "PIN", err, want)
	if err != nil {
		return
	}
	none := unix.Errno(unix.EOPNOTSUPP)
	if k.driver {
		none = 0
	}
	view, errno := tryMapping(d.fd, p.MmapOffset, len(b), unix.PROT_READ, unix.MAP_SHARED)
	wantErrno(t, "mmap of the pin", errnoOf(errno), none)
	if errno == 0 {
		if k.driver && !bytes.Equal(view, b) {
			t.Error("the mapping of the pin shows other bytes")
		}
		right := unix.Errno(0)
		if k.from != 0 {
			right = unix.EACCES
		}
		wantErrno(t, "mprotect of the pin's mapping", unix.Mprotect(view, readWrite), right)
		unmap(t, view, 0)
	}
	view, errno = tryMapping(d.fd, p.MmapOffset, len(b), readWrite, unix.MAP_SHARED)
	switch {
	case k.from == 0:
		wantErrno(t, "mmap of the pin for writing", errnoOf(errno), none)
	case k.driver || errno != unix.EOPNOTSUPP:
		wantErrno(t, "mmap for writing of a pin of read-only memory", errnoOf(errno), unix.EACCES)
	}
	if errno == 0 {
		unmap(t, view, 0)
	}
	d.live(t).put(t, p.Handle)
}

// letIn permits everyone to open a device file.
func letIn(t *testing.T, name string) {
	t.Helper()
	if isNobody() {
		return
	}
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(name, 0o600) })
}

func openFile(t *testing.T, name string, mode int) int {
	t.Helper()
	fd, err := unix.Open(name, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func hostmem(t *testing.T) int { return openFile(t, "/dev/hostmem", unix.O_RDWR) }

// owned opens root's read-only file.
func owned(t *testing.T) int {
	if fd, err := unix.Open(ownedFile, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
		t.Fatal("nobody may write root's file")
	}
	return openFile(t, ownedFile, unix.O_RDONLY)
}

// sealed returns memory that is sealed against changes. Linux 6.1 maps such a file only privately.
func sealed(t *testing.T) []byte {
	fd := memfd(t, kindSize, unix.MFD_ALLOW_SEALING)
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return mapping(t, fd, kindSize, unix.PROT_READ, unix.MAP_PRIVATE)
}

// vdso returns the first page of the code that the kernel shares with every process.
func vdso(t *testing.T) []byte {
	const sysinfo = 33 // AT_SYSINFO_EHDR
	b, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		t.Fatal(err)
	}
	for ; len(b) >= 16; b = b[16:] {
		if binary.NativeEndian.Uint64(b) == sysinfo {
			return bytesAt(uintptr(binary.NativeEndian.Uint64(b[8:])), page)
		}
	}
	t.Fatal("no vDSO")
	return nil
}

// ksmRun is the file that starts and stops the kernel's merging of equal pages.
const ksmRun = "/sys/kernel/mm/ksm/run"

func tellKSM(t *testing.T, what string) {
	t.Helper()
	if err := os.WriteFile(ksmRun, []byte(what), 0); err != nil {
		t.Fatal(err)
	}
}

// scanKSM makes the kernel scan all mergeable memory twice.
func scanKSM(t *testing.T) {
	t.Helper()
	scans := func() (n int) {
		b, err := os.ReadFile("/sys/kernel/mm/ksm/full_scans")
		if err == nil {
			_, err = fmt.Sscan(string(b), &n)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	asRoot(t, "/sys/kernel/mm/ksm/pages_to_scan", "2000")
	tellKSM(t, "1")
	defer tellKSM(t, "0")
	for first, deadline := scans(), time.Now().Add(patience); scans() < first+3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the kernel does not look for equal pages")
		}
	}
}

// merged returns memory that shares pages with other memory. It stops the scans before it returns, because the kernel
// also scans pinned pages, which nv-p2p takes for the end of a pin.
func merged(t *testing.T) []byte {
	const size = 64 * page
	b := anonymous(t, size)
	for i := range b {
		b[i] = 0x5c
	}
	if err := unix.Madvise(b, unix.MADV_NOHUGEPAGE); err != nil {
		t.Fatal(err)
	}
	if err := unix.Madvise(b, unix.MADV_MERGEABLE); err != nil {
		t.Fatal(err)
	}
	tellKSM(t, "1")
	defer tellKSM(t, "0")
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		n, err := os.ReadFile("/sys/kernel/mm/ksm/pages_sharing")
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("nothing is merged: %v", err)
		}
		if len(strings.TrimSpace(string(n))) > 1 { // ten or more
			return b[:kindSize]
		}
	}
}

const hugePage = 2 << 20

// transparent returns a part of a transparent huge page.
func transparent(t *testing.T) []byte {
	b := mapping(t, -1, 2*hugePage, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
	b = b[-address(b)&(hugePage-1):][:hugePage]
	if err := unix.Madvise(b, unix.MADV_HUGEPAGE); err != nil {
		t.Fatal(err)
	}
	b[0] = 1
	rollup, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil || strings.Contains(string(rollup), "AnonHugePages:         0 kB") {
		t.Errorf("no huge page: %v", err)
	}
	return b[page:][:kindSize]
}

// secret returns memory that is hidden from the kernel.
func secret(t *testing.T) []byte {
	fd, _, errno := unix.Syscall(unix.SYS_MEMFD_SECRET, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Fatalf("memfd_secret: %v", errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	if err := unix.Ftruncate(int(fd), kindSize); err != nil {
		t.Fatal(err)
	}
	return mapping(t, int(fd), kindSize, readWrite, unix.MAP_SHARED)
}

// userfault returns memory whose pages a userfaultfd handler should fill in, and never does. With flag 1 this applies
// only to faults of the program; without it, the kernel's accesses also wait, until the descriptor is closed.
func userfault(t *testing.T, flags uintptr) (b []byte, filler *os.File) {
	const (
		api      = 0xc018aa3f
		register = 0xc020aa00
		missing  = 1
	)
	n, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0, 0)
	if errno != 0 {
		t.Fatalf("userfaultfd: %v", errno)
	}
	ufd := os.NewFile(n, "userfaultfd")
	t.Cleanup(func() { ufd.Close() })
	b = mapping(t, -1, kindSize, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
	ask := [3]uint64{0xaa}
	call(t, "UFFDIO_API", unix.SYS_IOCTL, n, api, uintptr(unsafe.Pointer(&ask)))
	reg := [4]uint64{address(b), kindSize, missing}
	call(t, "UFFDIO_REGISTER", unix.SYS_IOCTL, n, register, uintptr(unsafe.Pointer(&reg)))
	return b, ufd
}

// TestUserfaultfd pins memory that is never filled in: PIN must not wait for it.
func TestUserfaultfd(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	for _, flags := range []uint32{bothWays, uapi.PinToDevice} {
		b, filler := userfault(t, 0)
		pinned := make(chan error, 1)
		go func() {
			_, _, err := d.pin(b, flags)
			pinned <- err
		}()
		select {
		case err := <-pinned:
			wantErrno(t, "PIN", err, unix.EFAULT)
		case <-time.After(patience):
			t.Fatal("PIN waits")
		}
		filler.Close()
	}
}
