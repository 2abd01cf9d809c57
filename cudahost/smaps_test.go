// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vma is an entry of /proc/self/smaps (proc_pid_smaps(5)).
type vma struct {
	begin, end uint64
	prot       string            // "rw-s"
	device     string            // "00:01", major and minor
	name       string            // file name, "" for anonymous memory
	flags      []string          // VmFlags
	fields     map[string]string // the others, as printed
}

// vmaOf returns the entry of the mapping that contains addr.
func vmaOf(addr uintptr) (vma, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return vma{}, err
	}
	defer f.Close()
	var found vma
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if !strings.Contains(key, " ") && found.fields != nil { // "Rss:   4 kB"
			found.fields[key] = strings.Join(strings.Fields(value), " ")
			continue
		}
		if found.fields != nil {
			break
		}
		var v vma
		var offset, inode uint64
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &v.begin, &v.end, &v.prot, &offset, &v.device, &inode)
		if err == nil && v.begin <= uint64(addr) && uint64(addr) < v.end {
			found = v
			found.fields = map[string]string{}
			if words := strings.Fields(lines.Text()); len(words) > 5 {
				found.name = strings.Join(words[5:], " ")
			}
		}
	}
	if found.fields == nil {
		return vma{}, fmt.Errorf("nothing is mapped at %#x", addr)
	}
	found.flags = strings.Fields(found.fields["VmFlags"])
	if len(found.flags) == 0 {
		return vma{}, errors.New("/proc/self/smaps has no VmFlags: this kernel is not Linux")
	}
	return found, nil
}

func (v vma) has(flag string) bool { return slices.Contains(v.flags, flag) }

func (v vma) String() string {
	s := fmt.Sprintf("%d KiB %s, device %s, %q, VmFlags %s", (v.end-v.begin)>>10, v.prot, v.device, v.name, strings.Join(v.flags, " "))
	for _, key := range []string{"Rss", "AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Locked", "KernelPageSize"} {
		s += fmt.Sprintf(", %s %s", key, v.fields[key])
	}
	return s
}

// refusal returns why pin_user_pages with FOLL_LONGTERM refuses a mapping, or "" if it does not. It implements the
// rules of check_vma_flags and vma_needs_dirty_tracking (Linux 6.5 and newer, mm/gup.c and mm/mmap.c) and, for a single
// mapping, tp_check_vma (tegra/kmod/pin.c). A page that a driver has inserted without a struct page (pte_special) does
// not show in smaps.
func (v vma) refusal(write bool) string {
	filesystem := v.name != "" && !strings.HasPrefix(v.name, "[") && !strings.HasPrefix(v.name, "/dev/") && v.device != shmem()
	switch {
	case v.has("io"):
		return "VM_IO: registers, not memory"
	case v.has("pf"):
		return "VM_PFNMAP: pages that the kernel does not count"
	case strings.HasPrefix(v.name, "/secretmem"):
		return "VM_SECRETMEM: the kernel itself may not read it"
	case write && v.has("sh") && v.has("wr") && filesystem:
		return "shared and writable pages of a file system with write-back"
	case write && !v.has("wr"):
		return "it is not writable"
	case !v.has("rd"):
		return "it is not readable"
	}
	return ""
}

// shmem returns the device of the kernel's own tmpfs mount, which holds memfds and shared anonymous memory and has no
// write-back.
func shmem() string {
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
}

// errNotAsked is wrapped if the kernel cannot be asked to pin memory.
var errNotAsked = errors.New("io_uring cannot be used here")

// pinByKernel makes the kernel pin memory and release it: buffers registered with an io_uring are pinned by
// pin_user_pages with FOLL_WRITE and FOLL_LONGTERM (io_uring/memmap.c, io_pin_pages).
func pinByKernel(addr uintptr, size int) error {
	var params [120]byte // struct io_uring_params
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno != 0 {
		return fmt.Errorf("%w: io_uring_setup: %w", errNotAsked, errno)
	}
	defer unix.Close(int(ring))
	iov := [1]struct{ base, len uintptr }{{addr, uintptr(size)}}
	const registerBuffers = 0 // IORING_REGISTER_BUFFERS
	_, _, errno = unix.Syscall6(unix.SYS_IO_URING_REGISTER, ring, registerBuffers, uintptr(unsafe.Pointer(&iov[0])), 1, 0, 0)
	switch errno {
	case 0:
		return nil
	case unix.ENOMEM:
		return fmt.Errorf("%w: RLIMIT_MEMLOCK: %w", errNotAsked, errno)
	}
	return errno
}

// pinnable fails the test if the rules, or the kernel itself, do not agree with want on whether memory for a device to
// write to can be pinned. It logs what it found.
func pinnable(t *testing.T, what string, addr uintptr, size int, want bool) {
	t.Helper()
	v, err := vmaOf(addr)
	if err != nil {
		t.Fatal(err)
	}
	refusal, verdict := v.refusal(true), "yes"
	if refusal != "" {
		verdict = "no, because of " + refusal
	}
	asked := pinByKernel(addr, size)
	t.Logf("%s: %v\n\tpin_user_pages can pin it: %s; asked by io_uring: %v", what, v, verdict, asked)
	if (refusal == "") != want {
		t.Errorf("%s: by the rules it can be pinned: %t, want %t", what, refusal == "", want)
	}
	// Before 6.5, io_uring itself refuses all files except those of shmem.
	if !errors.Is(asked, errNotAsked) && !errors.Is(asked, unix.EOPNOTSUPP) && (asked == nil) != want {
		t.Errorf("%s: the kernel says %v, want it pinned: %t", what, asked, want)
	}
}

// TestPinRules compares the rules with the kernel, for memory with a known answer.
func TestPinRules(t *testing.T) {
	const size = 4 * pageSize
	mapped := func(fd, prot, flags int) uintptr {
		b, err := unix.Mmap(fd, 0, size, prot, flags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		return addressOf(b)
	}
	m, err := newMemfd(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const both = unix.PROT_READ | unix.PROT_WRITE
	pinnable(t, "anonymous memory", mapped(-1, both, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS), size, true)
	pinnable(t, "shared anonymous memory", mapped(-1, both, unix.MAP_SHARED|unix.MAP_ANONYMOUS), size, true)
	pinnable(t, "a slot in a memfd", addressOf(m.bytes(size)), size, true)
	pinnable(t, "memory that is mapped to read", mapped(-1, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS), size, false)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := errors.Join(f.Truncate(size), unix.Fstatfs(int(f.Fd()), &fs)); err != nil {
		t.Fatal(err)
	}
	private := mapped(int(f.Fd()), both, unix.MAP_PRIVATE)
	pinnable(t, "a private mapping of a file", private, size, true)
	if fs.Type != unix.TMPFS_MAGIC && sinceLinux(6, 5) {
		pinnable(t, "a shared mapping of a file", mapped(int(f.Fd()), both, unix.MAP_SHARED), size, false)
	}
}

// sinceLinux reports whether the kernel has at least the given version.
func sinceLinux(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b)
	return err == nil && (a > major || a == major && b >= minor)
}

// TestGPUMemoryCanBePinned measures what docs/module.md says of the memory of each kind that slots are made of: whether
// the kernel module can pin it by pin_user_pages, which has no nv-p2p.
func TestGPUMemoryCanBePinned(t *testing.T) {
	c := gpu(t)
	t.Log(c.Device)
	const size = 1920 * 1080 * 2 &^ (pageSize - 1)
	for _, k := range []struct {
		what  string
		flags Flags
		want  bool
	}{
		{"cudaHostAlloc", Mapped, true},
		{"cudaHostAlloc, portable", Portable | Mapped, true},
		{"cudaHostAlloc, write-combined", WriteCombined | Mapped, true},
		{"memfd by cudaHostRegister", Shared | Mapped, true},
	} {
		b, err := c.AllocHost(size, k.flags)
		if err != nil {
			t.Fatal(err)
		}
		pinnable(t, k.what, b.Addr(), size, k.want)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
