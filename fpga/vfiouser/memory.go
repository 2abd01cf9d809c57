// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// Errors of an access.
var (
	ErrUnmapped  = errors.New("address is not mapped for the device")
	ErrBusMaster = errors.New("the function may not use the bus: Bus Master Enable is clear, or it is not in D0")
)

// Bounds of what a client can make the server store.
const (
	pageSize  = 4096  // of mappings: pgsizes
	maxRanges = 65535 // max_dma_maps; QEMU refuses a device that offers more
	maxMapped = 64    // mapped files
)

// Memory is the memory that the machine has mapped for the function, as seen through its IOMMU. It implements
// model.Bus. The zero value is ready for use, with nothing mapped. A Memory belongs to one Server.
//
// A machine's RAM consists of one or a few files, while IOMMU mappings are numerous and short-lived. Therefore each file
// is mapped once as a whole, and the accessible memory is a sorted table of ranges in these files.
type Memory struct {
	refused func(Refusal) // called for each access that fails with ErrUnmapped; nil: not called

	// mu is held for reading during an access, so that an unmapping is answered only when no access is in progress.
	mu     sync.RWMutex
	master bool // the function may use the bus
	// attached means that a machine is connected and has since enabled bus mastering.
	attached bool
	ranges   []span
	files    map[fileID]*file

	books memoryBooks
}

// span is a range of bus addresses; spans do not overlap.
type span struct {
	addr, size uint64
	flags      uint32
	file       *file  // nil: the client does not share this memory
	bytes      []byte // the mapped part of file; nil without a file
}

func (s *span) last() uint64 { return s.addr + (s.size - 1) }

func (s *span) allows(write bool) bool {
	if write {
		return s.bytes != nil && s.flags&mapWritable != 0
	}
	return s.bytes != nil && s.flags&mapReadable != 0
}

type fileID struct{ dev, ino uint64 }

// file is a mapped file. The mapping keeps its inode, so that the inode's number is not reused.
type file struct {
	bytes    []byte
	writable bool
	ranges   int // number of spans in the file
}

// Read copies len(p) bytes from bus address addr to p, completely or, with an error, not at all; if the client has
// truncated a file, a part may have been copied. An error wraps ErrUnmapped or ErrBusMaster.
func (m *Memory) Read(addr uint64, p []byte) error { return m.access(addr, p, false) }

// Write copies p to bus address addr, with Read's errors and as completely as Read.
func (m *Memory) Write(addr uint64, p []byte) error { return m.access(addr, p, true) }

func (m *Memory) access(addr uint64, p []byte, write bool) error {
	if len(p) == 0 {
		return nil
	}
	at, attached, err := m.move(addr, p, write)
	if err == nil {
		m.books.moved(len(p), write)
		return nil
	}
	r := Refusal{Addr: at, Len: len(p), Write: write}
	m.books.refuse(r, attached)
	if m.refused != nil && errors.Is(err, ErrUnmapped) {
		m.refused(r)
	}
	return fmt.Errorf("bus access to %#x, %d bytes, stopped at %#x: %w", addr, len(p), at, err)
}

// move performs an access. It returns m.attached, and, with an error, the address at which the access was refused.
func (m *Memory) move(addr uint64, p []byte, write bool) (at uint64, attached bool, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	attached = m.attached
	if !m.master {
		return addr, attached, ErrBusMaster
	}
	first := m.find(addr)
	if at, ok := m.covered(first, addr, uint64(len(p)), write); !ok {
		return at, attached, ErrUnmapped
	}
	// A file that its owner has truncated has no memory behind the mapping.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	at = addr
	defer func() {
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
			err = ErrUnmapped
		}
	}()
	for i := first; len(p) > 0; i++ {
		s := &m.ranges[i]
		b := s.bytes[at-s.addr:]
		n := 0
		if write {
			n = copy(b, p)
		} else {
			n = copy(p, b)
		}
		at, p = at+uint64(n), p[n:]
	}
	return at, attached, nil
}

// find returns the index of the first range that ends at or after addr, or len(m.ranges) if there is none.
func (m *Memory) find(addr uint64) int {
	return sort.Search(len(m.ranges), func(i int) bool { return m.ranges[i].last() >= addr })
}

// covered reports whether the ranges from i on contain all n bytes at addr and permit the access. If not, at is the
// first address for which that is not so.
func (m *Memory) covered(i int, addr, n uint64, write bool) (at uint64, ok bool) {
	for ; ; i++ {
		if i >= len(m.ranges) || m.ranges[i].addr > addr || !m.ranges[i].allows(write) {
			return addr, false
		}
		rest := m.ranges[i].last() - addr // the number of bytes from addr on, minus one
		if n-1 <= rest {
			return addr, true
		}
		if m.ranges[i].last() == ^uint64(0) {
			return ^uint64(0), false // beyond the last address
		}
		addr, n = addr+rest+1, n-rest-1
	}
}

// setMaster enables or disables bus mastering. Accesses that began before have ended when it returns.
func (m *Memory) setMaster(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.master, m.attached = on, m.attached || on
}

// mapRange maps a range. fd, or -1 for none, remains the caller's. It returns 0, EEXIST for an address that is already
// mapped, EINVAL for an empty or overflowing range, partial pages, a range outside the file or anything but a non-empty
// regular file, EACCES for a writable range of a read-only file, ENOSPC if a table is full, or the error of mmap.
func (m *Memory) mapRange(r mapRequest, fd int) unix.Errno {
	if r.size == 0 || (r.addr|r.size|r.offset)%pageSize != 0 || r.addr+(r.size-1) < r.addr {
		return unix.EINVAL
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := span{addr: r.addr, size: r.size, flags: r.flags}
	i := m.find(r.addr)
	if i < len(m.ranges) && m.ranges[i].addr <= s.last() {
		return unix.EEXIST
	}
	if len(m.ranges) >= maxRanges {
		return unix.ENOSPC
	}
	if fd >= 0 {
		f, errno := m.open(fd)
		if errno != 0 {
			return errno
		}
		size := uint64(len(f.bytes))
		if r.offset > size || r.size > size-r.offset {
			return unix.EINVAL
		}
		if r.flags&mapWritable != 0 && !f.writable {
			return unix.EACCES
		}
		f.ranges++
		s.file, s.bytes = f, f.bytes[r.offset:r.offset+r.size:r.offset+r.size]
	}
	m.ranges = slices.Insert(m.ranges, i, s)
	m.books.maps.Add(1)
	return 0
}

// open maps a whole file unless it is already mapped.
func (m *Memory) open(fd int) (*file, unix.Errno) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size <= 0 {
		return nil, unix.EINVAL
	}
	id := fileID{uint64(st.Dev), st.Ino}
	if f, ok := m.files[id]; ok {
		return f, 0
	}
	if len(m.files) >= maxMapped {
		m.closeFiles(func(f *file) bool { return f.ranges == 0 })
	}
	if len(m.files) >= maxMapped {
		return nil, unix.ENOSPC
	}
	f := &file{writable: true}
	var err error
	f.bytes, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if errors.Is(err, unix.EACCES) {
		f.writable = false
		f.bytes, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		var errno unix.Errno
		if !errors.As(err, &errno) {
			errno = unix.EINVAL
		}
		return nil, errno
	}
	if m.files == nil {
		m.files = map[fileID]*file{}
	}
	m.files[id] = f
	return f, 0
}

func (m *Memory) closeFiles(which func(*file) bool) {
	for id, f := range m.files {
		if which(f) {
			_ = unix.Munmap(f.bytes)
			delete(m.files, id)
		}
	}
}

// remove unmaps every range within r. It is no error if there is none: QEMU unmaps whole windows of an IOMMU as a
// precaution. If r is empty, overflows or does not consist of whole pages, or a range lies only partly within r, remove
// returns EINVAL and unmaps nothing.
func (m *Memory) remove(r unmapRequest) unix.Errno {
	if !r.all && (r.size == 0 || (r.addr|r.size)%pageSize != 0 || r.addr+(r.size-1) < r.addr) {
		return unix.EINVAL
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i, j := 0, len(m.ranges)
	if !r.all {
		last := r.addr + (r.size - 1)
		i = m.find(r.addr)
		j = i + sort.Search(len(m.ranges)-i, func(k int) bool { return m.ranges[i+k].addr > last })
		if i < j && (m.ranges[i].addr < r.addr || m.ranges[j-1].last() > last) {
			return unix.EINVAL
		}
	}
	for _, s := range m.ranges[i:j] {
		if s.file != nil {
			s.file.ranges--
		}
	}
	m.ranges = slices.Delete(m.ranges, i, j)
	m.books.unmaps.Add(uint64(j - i))
	return 0
}

// drop removes all mappings of a client that has disconnected.
func (m *Memory) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.books.unmaps.Add(uint64(len(m.ranges)))
	m.ranges, m.attached = nil, false
	m.closeFiles(func(*file) bool { return true })
}
