// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
)

// bytesAt is the memory at an address that is kept mapped by its owner. The detour by a pointer to the integer is
// for memory that the garbage collector does not know.
func bytesAt(addr uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

// AllocCoherent implements tegra.Pinner: anonymous memory with one segment.
func (s *Sim) AllocCoherent(size int) (*tegra.Coherent, error) {
	if size <= 0 || size > tegra.MaxCoherentSize {
		return nil, fmt.Errorf("coherent memory: %w: %d bytes (want 1 to %d)", tegra.ErrSize, size, tegra.MaxCoherentSize)
	}
	size = (size + tegra.PageSize - 1) &^ (tegra.PageSize - 1)
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("coherent memory of %d bytes: %w", size, err)
	}
	o := &owner{
		what: "coherent memory", addr: uintptr(unsafe.Pointer(&b[0])), size: size, live: true, stack: debug.Stack(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errors.Join(fmt.Errorf("coherent memory: %w", tegra.ErrClosed), unix.Munmap(b))
	case s.fenced:
		return nil, errors.Join(fmt.Errorf("coherent memory: %w (generation %d)", tegra.ErrFenced, s.fence), unix.Munmap(b))
	case len(s.owners) == tegra.MaxPins:
		return nil, errors.Join(fmt.Errorf("coherent memory: %w: %d pins and allocations are the most", unix.ENOSPC, tegra.MaxPins), unix.Munmap(b))
	}
	segments := s.mapSegments(o, true, true, []int{size})
	s.owners[o] = struct{}{}
	return tegra.NewCoherent(b, segments, func() error {
		s.mu.Lock()
		s.unmap(o)
		delete(s.owners, o)
		s.mu.Unlock()
		return unix.Munmap(b)
	}), nil
}

// checkMapped refuses a range that is not mapped, made of two mappings, or that the device is to write and the process
// may not, as the kernel module does.
func checkMapped(addr uintptr, size int, write bool) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("pin %#x: memory map of the process: %w", addr, err)
	}
	at, end := uint64(addr), uint64(addr)+uint64(size)
	for line := range bytes.Lines(maps) {
		first, last, prot, ok := parseMapsLine(line)
		if !ok || last <= at {
			continue
		}
		if first > at {
			break
		}
		if prot[0] != 'r' || write && prot[1] != 'w' {
			return fmt.Errorf("pin %#x, %d bytes: %w: memory at %#x has protection %s",
				addr, size, tegra.ErrRange, at, prot)
		}
		if last < end {
			return fmt.Errorf("pin %#x, %d bytes: %w: its mapping ends at %#x: pin one whole allocation", addr, size, tegra.ErrRange, last)
		}
		return nil
	}
	return fmt.Errorf("pin %#x, %d bytes: %w: nothing is mapped at %#x", addr, size, tegra.ErrRange, at)
}

// parseMapsLine reads "first-last prot ..." (proc_pid_maps(5)).
func parseMapsLine(line []byte) (first, last uint64, prot string, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) < 2 || len(fields[1]) < 4 {
		return 0, 0, "", false
	}
	a, b, ok := bytes.Cut(fields[0], []byte{'-'})
	if !ok {
		return 0, 0, "", false
	}
	first, err1 := strconv.ParseUint(string(a), 16, 64)
	last, err2 := strconv.ParseUint(string(b), 16, 64)
	return first, last, string(fields[1]), err1 == nil && err2 == nil
}
