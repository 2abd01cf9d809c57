// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// area is a range of addresses with slots for changing mappings. It contains no memory of Go.
type area struct {
	base   uintptr
	slots  int
	pages  int // per slot
	stride uintptr
}

func (a area) at(slot int) uintptr { return a.base + uintptr(slot)*a.stride }

// lowest is the start of the areas. Where the caller requests no address, the kernel allocates memory from the top
// down, so Go's memory never lies in a hole that an unmapping has left in an area.
const lowest = 0x20_0000_0000

// reserve reserves a range of addresses and returns base. It panics if part of the range is in use.
func reserve(base, size uintptr, prot int) uintptr {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE | unix.MAP_FIXED_NOREPLACE
	if _, errno := mmap(base, size, prot, flags, -1, 0); errno != 0 {
		panic("an area's addresses are taken: " + errno.Error())
	}
	return base
}

// reserve reserves the areas. Each slot is followed by an inaccessible gap.
func (p *process) reserve() {
	next := uintptr(lowest)
	take := func(slots, pages int, stride uintptr) area {
		a := area{reserve(next, uintptr(slots)*stride, unix.PROT_NONE), slots, pages, stride}
		next += (uintptr(slots)*stride + hugePage) &^ (hugePage - 1)
		return a
	}
	p.huge = take(3, hugePage/page, 2*hugePage)
	p.memory = take(24, 64, 65*page)
	p.driver = take(6, 16, 17*page)
	p.views = take(16, 64, 65*page)
	p.rooms = next
}

// The following four functions are system calls with arbitrary addresses.

func mmap(at, size uintptr, prot, flags, fd int, offset uint64) (uintptr, unix.Errno) {
	r, _, errno := unix.Syscall6(unix.SYS_MMAP, at, size, uintptr(prot), uintptr(flags), uintptr(fd), uintptr(offset))
	return r, errno
}

func munmap(at, size uintptr) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_MUNMAP, at, size, 0)
	return errno
}

func mprotect(at, size uintptr, prot int) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_MPROTECT, at, size, uintptr(prot))
	return errno
}

func move(from, size, larger, to uintptr, flags int) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_MREMAP, from, size, larger, uintptr(unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED|flags), to, 0)
	return errno
}

// at returns a pointer to the word at an address that may be unmapped. If it is inlined into a copy to that address, Go
// 1.26's compiler fails.
//
//go:noinline
func at(addr uintptr) *uint32 { return *(**uint32)(unsafe.Pointer(&addr)) }

// word reads or writes the word at an address. It counts accesses to unmapped memory.
func (t *thread) word(addr uintptr, write bool) {
	defer func() {
		if recover() != nil {
			t.tally.faults.Add(1)
		}
	}()
	if write {
		atomic.StoreUint32(at(addr), t.Uint32())
	} else {
		atomic.LoadUint32(at(addr))
	}
}

// touchPages touches a few pages from an address on.
func (t *thread) touchPages(addr uintptr, pages int) unix.Errno {
	for i := range pages {
		t.word(addr+uintptr(i)*page+4*uintptr(t.IntN(page/4)), t.one(2))
	}
	return 0
}

// span returns a random range of up to n pages in a random slot of an area.
func (t *thread) span(a area, n int) (addr, size uintptr) {
	pages := 1 + t.IntN(min(n, a.pages))
	first := 0
	if t.one(2) {
		first = t.IntN(min(8, a.pages-pages+1))
	}
	return a.at(t.IntN(a.slots)) + uintptr(first)*page, uintptr(pages) * page
}

// some returns an area of memory that may be pinned.
func (t *thread) some() area {
	switch t.IntN(8) {
	case 0:
		return t.driver
	case 1:
		return t.huge
	}
	return t.memory
}

func (t *thread) touch() unix.Errno {
	a := t.some()
	if t.one(3) {
		a = t.views
	}
	addr, size := t.span(a, 8)
	if a == t.views { // it may contain registers
		t.word(addr, false)
		return 0
	}
	return t.touchPages(addr, int(size/page))
}

// copy makes the kernel write random bytes to memory, by getrandom(2).
func (t *thread) copy() unix.Errno {
	addr, size := t.span(t.some(), 4)
	_, _, errno := unix.Syscall(unix.SYS_GETRANDOM, addr, size, 0)
	return errno
}

// fill creates new memory in a slot.
func (t *thread) fill() unix.Errno {
	populate := 0
	if t.one(2) {
		populate = unix.MAP_POPULATE
	}
	switch a := t.some(); a {
	case t.driver:
		_, errno := mmap(a.at(t.IntN(a.slots)), uintptr(1+t.IntN(a.pages))*page, t.prot(), unix.MAP_SHARED|unix.MAP_FIXED, fdDriver, uint64(page*t.IntN(2)))
		return errno
	case t.huge:
		return t.fillHuge(populate)
	}
	slot, size := t.IntN(t.memory.slots), uintptr(1+t.IntN(t.memory.pages))*page
	fd, flags := -1, unix.MAP_PRIVATE|unix.MAP_ANON
	switch t.IntN(5) {
	case 0:
		flags = unix.MAP_SHARED | unix.MAP_ANON
	case 1, 2:
		fd, flags = t.memfd(slot, size, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING), unix.MAP_SHARED
		if t.one(2) {
			flags = unix.MAP_PRIVATE
		}
	}
	_, errno := mmap(t.memory.at(slot), size, t.prot(), flags|unix.MAP_FIXED|populate, fd, 0)
	return errno
}

func (t *thread) prot() int {
	if t.one(5) {
		return unix.PROT_READ
	}
	return unix.PROT_READ | unix.PROT_WRITE
}

// fillHuge maps memory of the size of a huge page: a page of hugetlb, or memory that may get a transparent huge page.
func (t *thread) fillHuge(populate int) unix.Errno {
	slot := t.IntN(t.huge.slots)
	addr, fd, flags := t.huge.at(slot), -1, unix.MAP_PRIVATE|unix.MAP_ANON
	switch t.IntN(4) {
	case 0:
		flags |= unix.MAP_HUGETLB
	case 1:
		fd, flags = t.memfd(t.memory.slots+slot, hugePage, unix.MFD_CLOEXEC|unix.MFD_HUGETLB), unix.MAP_SHARED
	case 2:
		fd, flags = t.memfd(t.memory.slots+slot, hugePage, unix.MFD_CLOEXEC), unix.MAP_SHARED
	}
	_, errno := mmap(addr, hugePage, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED, fd, 0)
	if errno == 0 {
		_, _, errno = unix.Syscall(unix.SYS_MADVISE, addr, hugePage, unix.MADV_HUGEPAGE)
	}
	if errno == 0 && populate != 0 {
		t.touchPages(addr, 1)
	}
	return errno
}

// memfd creates a slot's file and returns its descriptor, or -1. The previous file's descriptor is closed; that file
// exists as long as it is mapped.
func (t *thread) memfd(slot int, size uintptr, flags int) int {
	fd, err := unix.MemfdCreate("kfuzz", flags)
	if err != nil {
		return -1
	}
	_ = unix.Ftruncate(fd, int64(size)) // fails if huge pages have run out
	if old := t.files[slot].Swap(int32(fd)); old > 0 {
		unix.Close(int(old))
	}
	return fd
}

func (t *thread) unmap() unix.Errno { return munmap(t.span(t.some(), 8)) }

// advices lists the ways in which madvise changes memory.
var advices = [...]int{
	unix.MADV_DONTNEED, unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_WILLNEED, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE,
	unix.MADV_MERGEABLE, unix.MADV_MERGEABLE, unix.MADV_UNMERGEABLE, unix.MADV_DONTFORK, unix.MADV_DOFORK, unix.MADV_COLD,
	unix.MADV_PAGEOUT, unix.MADV_POPULATE_READ, unix.MADV_POPULATE_WRITE, unix.MADV_COLLAPSE, unix.MADV_WIPEONFORK,
	unix.MADV_KEEPONFORK, unix.MADV_DONTDUMP, unix.MADV_REMOVE,
}

func (t *thread) advise() unix.Errno {
	addr, size := t.span(t.some(), 16)
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, addr, size, uintptr(advices[t.IntN(len(advices))]))
	return errno
}

func (t *thread) protect() unix.Errno {
	addr, size := t.span(t.some(), 8)
	const both = unix.PROT_READ | unix.PROT_WRITE
	return mprotect(addr, size, []int{unix.PROT_NONE, unix.PROT_READ, both, both, both}[t.IntN(5)])
}

// mremap moves memory onto another slot.
func (t *thread) mremap() unix.Errno {
	a := t.some()
	addr, size := t.span(a, 16)
	larger := size
	if t.one(4) && size < 16*page {
		larger += page
	}
	return move(addr, size, larger, a.at(t.IntN(a.slots)), 0)
}

func (t *thread) backing() int { return int(t.files[t.IntN(len(t.files))].Load()) }

func (t *thread) truncate() unix.Errno {
	fd := t.backing()
	if fd <= 0 {
		return skipped
	}
	_, _, errno := unix.Syscall(unix.SYS_FTRUNCATE, uintptr(fd), uintptr(t.IntN(t.memory.pages))*page, 0)
	return errno
}

func (t *thread) punch() unix.Errno {
	fd := t.backing()
	if fd <= 0 {
		return skipped
	}
	_, _, errno := unix.Syscall6(unix.SYS_FALLOCATE, uintptr(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE,
		uintptr(t.IntN(8))*page, uintptr(1+t.IntN(8))*page, 0, 0)
	return errno
}

// clearRefs marks all memory clean, which calls every notifier.
func (t *thread) clearRefs() unix.Errno {
	fd, err := unix.Open("/proc/self/clear_refs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte{"1234"[t.IntN(4)]})
		unix.Close(fd)
	}
	return errnoOf(err)
}

// vmRead makes the kernel copy between pinned, mapped and unmapped memory.
func (t *thread) vmRead() unix.Errno {
	from, n := t.span(t.views, 3)
	to, _ := t.span(t.some(), 1)
	ranges := (*[2][2]uintptr)(unsafe.Pointer(at(t.room)))
	ranges[0], ranges[1] = [2]uintptr{to, n}, [2]uintptr{from, n}
	_, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(unix.Getpid()), t.room, 1, t.room+16, 1, 0)
	return errno
}

func errnoOf(err error) unix.Errno {
	e, _ := errors.AsType[unix.Errno](err)
	return e
}
