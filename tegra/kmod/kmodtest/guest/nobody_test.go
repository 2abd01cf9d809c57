// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// isNobody reports whether this is the unprivileged process of a test.
func isNobody() bool { return os.Getenv("GUEST_NOBODY") != "" }

// asNobody runs the body of a test in a process of user nobody without capabilities, like the service: it only has the
// open device. The test runs again there, up to this call.
func asNobody(t *testing.T, body func(t *testing.T, d *device)) {
	t.Helper()
	if isNobody() {
		body(t, &device{4})
		return
	}
	noLeak(t)
	d := open(t).live(t)
	var names []string
	for name := range strings.SplitSeq(t.Name(), "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "/guest.test", "-test.v", "-test.run", strings.Join(names, "/"))
	c.Env = append(os.Environ(), "GUEST_NOBODY=1")
	c.ExtraFiles = []*os.File{os.Stdin, file(t, d.fd)}
	defer c.ExtraFiles[1].Close()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v:\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	d.close()
}

// asRoot prepares a test before nobody's process begins.
func asRoot(t *testing.T, name, text string) {
	t.Helper()
	if isNobody() {
		return
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mapping maps memory without present pages after an unused page, because nv-p2p takes a change that ends at the start of
// a pin for a change of the pin. The rest of it is unmapped at the test's end.
func mapping(t testing.TB, fd, size, prot, flags int) []byte {
	t.Helper()
	all, errno := tryMapping(-1, 0, page+size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if errno != 0 {
		t.Fatalf("mmap: %v", errno)
	}
	t.Cleanup(func() { unmap(t, all, 0) })
	call(t, "mmap", unix.SYS_MMAP, uintptr(address(all)+page), uintptr(size), uintptr(prot), uintptr(flags|unix.MAP_FIXED), uintptr(fd))
	return all[page:]
}

// hugetlb maps a huge page of hugetlb, without its first small page, which precedes a pin.
func hugetlb(t testing.TB) []byte {
	t.Helper()
	b, errno := tryMapping(memfd(t, hugePage, unix.MFD_HUGETLB), 0, hugePage, readWrite, unix.MAP_SHARED)
	if errno != 0 {
		t.Fatalf("mmap of a huge page: %v", errno)
	}
	t.Cleanup(func() { unmap(t, b, 0) })
	return b[page:]
}

func tryMapping(fd int, offset uint64, size, prot, flags int) ([]byte, unix.Errno) {
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(size), uintptr(prot), uintptr(flags), uintptr(fd), uintptr(offset))
	if errno != 0 {
		return nil, errno
	}
	return bytesAt(p, size), 0
}

func bytesAt(addr uintptr, size int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), size)
}

// errnoOf returns a nil error for 0, unlike an Errno in an interface.
func errnoOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// memfd makes a file in memory.
func memfd(t testing.TB, size, flags int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("attack", unix.MFD_CLOEXEC|flags)
	if err == nil {
		err = unix.Ftruncate(fd, int64(size))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}
