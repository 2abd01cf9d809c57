// SPDX-License-Identifier: Apache-2.0

package vma

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func mapped(t *testing.T, fd, prot, flags int) uintptr {
	t.Helper()
	b, err := unix.Mmap(fd, 0, 4096, prot, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return uintptr(unsafe.Pointer(&b[0]))
}

// vvar returns the address of the kernel's clock, which is device memory for pin_user_pages (VM_IO, VM_PFNMAP).
func vvar(t *testing.T) uintptr {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(maps) {
		if m, ok := parse(string(line)); ok && m.name == "[vvar]" {
			return uintptr(m.first)
		}
	}
	t.Skip("NEEDS a kernel that maps its clock: there is no [vvar]")
	return 0
}

func TestCheck(t *testing.T) {
	const both, private, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE, unix.MAP_SHARED
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var fs unix.Statfs_t
	if err := errors.Join(file.Truncate(4096), unix.Fstatfs(int(file.Fd()), &fs)); err != nil {
		t.Fatal(err)
	}
	memfd, err := unix.MemfdCreate("vma", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memfd)
	if err := unix.Ftruncate(memfd, 4096); err != nil {
		t.Fatal(err)
	}
	disk := fs.Type != unix.TMPFS_MAGIC
	for name, c := range map[string]struct {
		addr          uintptr
		size          int
		reads, writes bool // allowed for the device
	}{
		"anonymous":            {mapped(t, -1, both, private|unix.MAP_ANONYMOUS), 4096, true, true},
		"shared anonymous":     {mapped(t, -1, both, shared|unix.MAP_ANONYMOUS), 4096, true, true},
		"memfd":                {mapped(t, memfd, both, shared), 4096, true, true},
		"read-only":            {mapped(t, -1, unix.PROT_READ, private|unix.MAP_ANONYMOUS), 4096, true, false},
		"no access":            {mapped(t, -1, unix.PROT_NONE, private|unix.MAP_ANONYMOUS), 4096, false, false},
		"private of a file":    {mapped(t, int(file.Fd()), both, private), 4096, true, true},
		"shared of a file":     {mapped(t, int(file.Fd()), both, shared), 4096, !disk, !disk},
		"shared, only to read": {mapped(t, int(file.Fd()), unix.PROT_READ, shared), 4096, true, false},
		"nothing":              {4096, 4096, false, false},
		"the kernel's":         {1 << 63, 4096, false, false},
		"device memory":        {vvar(t), 4096, false, false},
		"beyond its mapping":   {mapped(t, -1, both, private|unix.MAP_ANONYMOUS), 1 << 46, false, false},
	} {
		for write, want := range map[bool]bool{false: c.reads, true: c.writes} {
			if err := Check(c.addr, c.size, write); (err == nil) != want || err != nil && !errors.Is(err, unix.EFAULT) {
				t.Errorf("%s, written by the device: %t: %v", name, write, err)
			}
		}
	}
}
