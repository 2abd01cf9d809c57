// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// view maps a pin or an allocation of the module in a slot.
func (t *thread) view(h held, size uintptr) unix.Errno {
	prot := unix.PROT_READ
	if !t.one(3) {
		prot |= unix.PROT_WRITE
	}
	addr := t.views.at(t.IntN(t.views.slots))
	_, errno := t.failing(unix.SYS_MMAP, addr, size, uintptr(prot), unix.MAP_SHARED|unix.MAP_FIXED, uintptr(h.fd), uintptr(h.offset))
	if errno != 0 {
		if !slices.Contains([]unix.Errno{
			unix.EINVAL, unix.ENODEV, unix.EACCES, unix.ESTALE, unix.EOPNOTSUPP, unix.ENOMEM, unix.EBADF, unix.EINTR,
		}, errno) {
			t.wrong("mmap of %v: %v", h, errno)
		}
		return errno
	}
	if h.pin {
		t.touchPages(addr, int(size/page))
		t.checkView(addr, size)
	}
	return 0
}

// checkView checks that the pages of a mapped pin are a driver's. Only root can identify the pages.
func (t *thread) checkView(addr, size uintptr) {
	const (
		present = 1 << 63
		frame   = 1<<55 - 1
		// LRU, anonymous, swap-backed, compound head and tail, huge, merged, transparent huge, zero (kernel-page-flags.h)
		foreign = 1<<5 | 1<<12 | 1<<14 | 1<<15 | 1<<16 | 1<<17 | 1<<21 | 1<<22 | 1<<24
	)
	if t.nobody {
		return
	}
	for a := addr; a < addr+size; a += page {
		entry := readWord("/proc/self/pagemap", a/page)
		if entry&present == 0 || entry&frame == 0 {
			continue
		}
		if flags := readWord("/proc/kpageflags", uintptr(entry&frame)); flags&foreign != 0 && readWord("/proc/self/pagemap", a/page) == entry {
			t.wrong("a pin's mapping has a page that is not a driver's: flags %#x", flags)
			return
		}
	}
}

// readWord reads the n-th word of a kernel file, or returns 0.
func readWord(name string, n uintptr) uint64 {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	b := make([]byte, 8)
	if n, err := unix.Pread(fd, b, 8*int64(n)); n != 8 || err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b)
}

func (t *thread) viewPin() unix.Errno   { return t.viewHeld(true) }
func (t *thread) viewAlloc() unix.Errno { return t.viewHeld(false) }

func (t *thread) viewHeld(pin bool) unix.Errno {
	h := t.handles[t.IntN(len(t.handles))].Load()
	if h == nil || h.pin != pin || h.size > uint64(t.views.pages*page) {
		return skipped
	}
	return t.view(*h, uintptr(h.size))
}

func (t *thread) viewBAR() unix.Errno {
	addr, size := t.span(t.views, 4)
	_, errno := mmap(addr, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED, t.fd(), 0)
	if errno == 0 {
		t.word(addr, false)
	}
	return errno
}

func (t *thread) unview() unix.Errno {
	addr, size := t.span(t.views, t.views.pages)
	_, errno := mmap(addr, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED|unix.MAP_NORESERVE, -1, 0)
	return errno
}

func (t *thread) moveView() unix.Errno {
	flags := 0
	if t.one(4) {
		flags = unix.MREMAP_DONTUNMAP
	}
	addr, size := t.span(t.views, 4)
	return move(addr, size, size, t.views.at(t.IntN(t.views.slots)), flags)
}

func (t *thread) protectView() unix.Errno {
	addr, size := t.span(t.views, 8)
	return mprotect(addr, size, []int{unix.PROT_NONE, unix.PROT_READ}[t.IntN(2)])
}
