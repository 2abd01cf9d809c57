// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"errors"
	"fmt"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// bytesAt returns the memory at an address that its owner keeps mapped. The detour through a pointer to the integer is
// for memory unknown to the garbage collector.
func bytesAt(addr uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

// AllocCoherent implements tegra.Pinner with anonymous memory in one segment.
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
	if err := s.admit(uapi.CallAlloc); err != nil {
		return nil, errors.Join(fmt.Errorf("coherent memory of %d bytes: %w", size, err), unix.Munmap(b))
	}
	segments := s.mapSegments(o, true, true, []int{size})
	s.owners[o] = struct{}{}
	return tegra.NewCoherent(b, segments, func() error { return s.freeCoherent(o, b) }), nil
}

// freeCoherent unmaps the memory even if PUT fails, as tegra.Device does.
func (s *Sim) freeCoherent(o *owner, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.release(o)
	if err != nil {
		s.unmap(o) // the device must not access what is unmapped below; the handle stays, and Close reports it
	}
	return errors.Join(err, unix.Munmap(b))
}
