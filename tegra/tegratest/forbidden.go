// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// forbidden is something that the kernel module refuses (docs/module.md). At least one of pinner and calls does
// it, and both return the error.
type forbidden struct {
	call  string // of the table in docs/module.md
	errno unix.Errno
	what  string

	// pinner attempts it through tegra.Pinner and tegra.Fencer; the error must wrap want.
	pinner func(t *testing.T, b *bench) error
	want   error

	calls func(t *testing.T, b *callBench) error // attempts it on the open file; the error must be errno
}

// list lists everything that is forbidden. Run attempts the entries with pinner, RunCalls those with calls.
// TestEveryErrnoHasAnEntry compares the list with docs/module.md.
func list() []forbidden {
	return append(append(forbiddenPins(), forbiddenMemory()...), forbiddenCalls()...)
}

// asked returns an entry for a PIN that is forbidden because of its arguments.
func asked(errno unix.Errno, what string, want error, request func(m memory) (addr uintptr, size int)) forbidden {
	return forbidden{
		"PIN", errno, what,
		func(_ *testing.T, b *bench) error {
			addr, size := request(b.memory(4))
			return b.tryPin(addr, size, tegra.ToDevice)
		},
		want,
		func(_ *testing.T, b *callBench) error {
			addr, size := request(b.memory(4))
			return b.pin(uapi.Pin{Flags: uapi.PinToDevice, VA: uint64(addr), Size: uint64(size)})
		},
	}
}

func forbiddenPins() []forbidden {
	const p = tegra.PageSize
	return []forbidden{
		asked(unix.EINVAL, "an address within a page", tegra.ErrAlignment, func(m memory) (uintptr, int) { return m.page(0) + 8, p }),
		asked(unix.EINVAL, "a part of a page", tegra.ErrAlignment, func(m memory) (uintptr, int) { return m.page(0), p + 8 }),
		asked(unix.EINVAL, "nothing", tegra.ErrSize, func(m memory) (uintptr, int) { return m.page(0), 0 }),
		asked(unix.EINVAL, "a range that wraps", tegra.ErrRange, func(memory) (uintptr, int) { return ^uintptr(0) &^ (p - 1), 2 * p }),
		asked(unix.E2BIG, "more than 1 GiB", tegra.ErrSize, func(m memory) (uintptr, int) { return m.page(0), tegra.MaxPinSize + p }),
		asked(unix.EINVAL, "address 0", tegra.ErrRange, func(memory) (uintptr, int) { return 0, p }),
		asked(unix.EFAULT, "what is not mapped", tegra.ErrRange, func(memory) (uintptr, int) { return p, p }),
		asked(unix.EFAULT, "memory of the kernel", tegra.ErrRange, func(memory) (uintptr, int) { return 0xffff << 48, p }),
		{
			"PIN", unix.EINVAL, "a direction that there is not",
			func(_ *testing.T, b *bench) error { return b.tryPin(b.memory(1).page(0), p, 7) }, tegra.ErrDirection,
			func(_ *testing.T, b *callBench) error { return b.pin(b.memory(1).asks(0)) },
		},
		{
			"PIN", unix.EINVAL, "two cache attributes", nil, nil,
			func(_ *testing.T, b *callBench) error {
				return b.pin(b.memory(1).asks(uapi.PinToDevice | uapi.PinExpectWB | uapi.PinExpectWC))
			},
		},
		{
			"PIN", unix.EMEDIUMTYPE, "another cache attribute",
			func(_ *testing.T, b *bench) error {
				pin, err := b.f.Pin(b.memory(1).page(0), p, tegra.ToDevice, tegra.WriteCombined)
				return b.never(pin, err)
			}, tegra.ErrCacheAttr,
			func(_ *testing.T, b *callBench) error {
				return b.pin(b.memory(1).asks(uapi.PinToDevice | uapi.PinExpectWC))
			},
		},
		{
			"PIN", unix.EBUSY, "memory that is pinned",
			func(_ *testing.T, b *bench) error {
				m := b.memory(3)
				defer b.unpinned(b.pin(m, 0, 2, tegra.ToDevice))
				return b.tryPin(m.page(1), 2*p, tegra.ToDevice)
			}, tegra.ErrOverlap,
			func(_ *testing.T, b *callBench) error {
				m := b.memory(2)
				defer b.put(b.pinned(m))
				return b.pin(m[p:].asks(uapi.PinFromDevice))
			},
		},
		{
			"PIN", unix.ESTALE, "a pin behind a fence",
			func(t *testing.T, b *bench) error {
				b.revokeOne()
				return b.tryPin(b.memory(1).page(0), p, tegra.ToDevice)
			}, tegra.ErrFenced,
			func(_ *testing.T, b *callBench) error {
				b.fence()
				return b.pin(b.memory(1).asks(uapi.PinToDevice))
			},
		},
		{
			"PIN", unix.ENOSPC, "more pins and allocations than 1024", nil, nil, // covered by the case "too many"
			func(_ *testing.T, b *callBench) error {
				m := b.memory(tegra.MaxPins + 1)
				for i := range tegra.MaxPins {
					b.pinned(m[i*p:][:p])
				}
				return b.pin(m[tegra.MaxPins*p:].asks(uapi.PinToDevice))
			},
		},
	}
}

// ofMemory returns an entry for a PIN of memory whose mapping does not allow it.
func ofMemory(what string, dir tegra.Direction, memory func(t *testing.T) (addr uintptr, size int)) forbidden {
	flags := uint32(uapi.PinToDevice)
	if dir == tegra.FromDevice {
		flags = uapi.PinFromDevice
	}
	return forbidden{
		"PIN", unix.EFAULT, what,
		func(t *testing.T, b *bench) error {
			addr, size := memory(t)
			return b.tryPin(addr, size, dir)
		},
		tegra.ErrRange,
		func(t *testing.T, b *callBench) error {
			addr, size := memory(t)
			return b.pin(uapi.Pin{Flags: flags, VA: uint64(addr), Size: uint64(size)})
		},
	}
}

func forbiddenMemory() []forbidden {
	protected := func(prot int) func(t *testing.T) (uintptr, int) {
		return func(t *testing.T) (uintptr, int) {
			m := newMemory(t, 2)
			if err := unix.Mprotect(m[tegra.PageSize:], prot); err != nil {
				t.Fatal(err)
			}
			return m.page(1), tegra.PageSize
		}
	}
	return []forbidden{
		ofMemory("read-only memory, for the device to write", tegra.FromDevice, protected(unix.PROT_READ)),
		ofMemory("memory that cannot be read", tegra.ToDevice, protected(unix.PROT_NONE)),
		ofMemory("two mappings", tegra.ToDevice, func(t *testing.T) (uintptr, int) {
			addr, _ := protected(unix.PROT_READ)(t)
			return addr - tegra.PageSize, 2 * tegra.PageSize
		}),
		ofMemory("a hole", tegra.FromDevice, func(t *testing.T) (uintptr, int) {
			m := newMemory(t, 4)
			if err := unix.MunmapPtr(unsafe.Pointer(&m[2*tegra.PageSize]), tegra.PageSize); err != nil {
				t.Fatal(err)
			}
			return m.page(1), 3 * tegra.PageSize
		}),
		ofMemory("memory of a device", tegra.ToDevice, vvar),
		ofMemory("a shared mapping of a file with write-back", tegra.ToDevice, sharedFile),
	}
}

// vvar returns the page where the kernel exposes its clock: it is VM_IO and VM_PFNMAP, like registers.
func vvar(t *testing.T) (addr uintptr, size int) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(maps) {
		if bytes.HasSuffix(line, []byte(" [vvar]\n")) {
			if _, err := fmt.Sscanf(string(line), "%x-", &addr); err != nil {
				t.Fatal(err)
			}
			return addr, tegra.PageSize
		}
	}
	t.Skip("NEEDS a kernel that maps its clock: there is no [vvar]")
	return 0, 0
}

func sharedFile(t *testing.T) (addr uintptr, size int) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := errors.Join(f.Truncate(tegra.PageSize), unix.Fstatfs(int(f.Fd()), &fs)); err != nil {
		t.Fatal(err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		t.Skip("NEEDS a file system with write-back: the folder for temporary files has none")
	}
	b, err := unix.Mmap(int(f.Fd()), 0, tegra.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return memory(b).page(0), tegra.PageSize
}
