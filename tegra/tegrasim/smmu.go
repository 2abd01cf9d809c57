// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/tegracast/tegracast/tegra"
)

// maxFaults is the maximum number of faults that are kept; beyond that they are only counted.
const maxFaults = 64

// ErrFault is wrapped by the error of every access that the SMMU rejects.
var ErrFault = errors.New("SMMU fault")

// A Fault is an access of the device that was rejected as a whole.
type Fault struct {
	IOVA   uint64
	Len    int  // bytes
	Write  bool // false: a read
	Reason string

	// Lost means that the memory was revoked, or unpinned behind the fence, and that the fence is still up, so the
	// engine need not have stopped.
	Lost bool
}

func (f Fault) String() string {
	kind := "read"
	if f.Write {
		kind = "write"
	}
	return fmt.Sprintf("%s of %d bytes at IOVA %#x: %s", kind, f.Len, f.IOVA, f.Reason)
}

// mapping is one contiguous range of bus addresses.
type mapping struct {
	iova        uint64
	size        int
	addr        uintptr // of the memory in the process
	read, write bool    // allowed to the device
	owner       *owner
	room        space // released when the mapping ends
}

// segmentLengths splits a size into the lengths of segments: one with Config.Contiguous, otherwise random ones.
func (s *Sim) segmentLengths(size int) []int {
	if s.cfg.Contiguous {
		return []int{size}
	}
	var list []int
	mean := s.cfg.MeanSegment / tegra.PageSize
	for size > 0 {
		n := min((1+s.rng.IntN(2*mean-1))*tegra.PageSize, s.cfg.MaxSegment, size)
		list = append(list, n)
		size -= n
	}
	return list
}

// mapSegments gives the owner's memory bus addresses: segments in random order, with a gap of at least a page after
// each. Ranges that became free last are reused first.
func (s *Sim) mapSegments(o *owner, read, write bool, lengths []int) []tegra.Segment {
	segments := make([]tegra.Segment, len(lengths))
	rooms := make([]space, len(lengths))
	for _, i := range s.rng.Perm(len(segments)) {
		rooms[i] = s.iovas.allocate(lengths[i], (1+s.rng.IntN(4))*tegra.PageSize)
		segments[i] = tegra.Segment{IOVA: rooms[i].iova, Len: lengths[i]}
	}
	addr := o.addr
	for i, seg := range segments {
		s.table = append(s.table, mapping{iova: seg.IOVA, size: seg.Len, addr: addr, read: read, write: write, owner: o, room: rooms[i]})
		addr += uintptr(seg.Len)
	}
	slices.SortFunc(s.table, func(a, b mapping) int { return cmp.Compare(a.iova, b.iova) })
	return segments
}

// unmap removes all of the owner's mappings. The caller must hold mu, so that no access is in flight.
func (s *Sim) unmap(o *owner) {
	o.live = false
	s.table = slices.DeleteFunc(s.table, func(m mapping) bool {
		if m.owner == o {
			s.iovas.release(m.room)
		}
		return m.owner == o
	})
}

// lose is unmap while the fence is up, or about to be raised. It records the addresses as lost: until the fence is
// lifted, the engine may still use them.
func (s *Sim) lose(o *owner) {
	for _, m := range s.table {
		if m.owner == o {
			s.lost = append(s.lost, space{m.iova, uint64(m.size)})
		}
	}
	s.unmap(o)
}

// Read reads host memory for the device: len(p) bytes at the bus address. It reads all of them, or fails with an error
// that wraps ErrFault.
func (s *Sim) Read(iova uint64, p []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	mem, err := s.translate(iova, len(p), false)
	if err != nil {
		return err
	}
	copy(p, mem)
	return nil
}

// Write writes host memory for the device, like Read. A CPU that polls with atomic loads sees an aligned write of 4 or
// 8 bytes completely or not at all, like one PCI Express write.
func (s *Sim) Write(iova uint64, p []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	mem, err := s.translate(iova, len(p), true)
	if err != nil {
		return err
	}
	switch {
	case len(p) == 4 && iova%4 == 0:
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&mem[0])), binary.NativeEndian.Uint32(p))
	case len(p) == 8 && iova%8 == 0:
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[0])), binary.NativeEndian.Uint64(p))
	default:
		copy(mem, p)
	}
	return nil
}

// translate returns the memory at a bus address, or records a fault and returns it as an error. mu must be held.
func (s *Sim) translate(iova uint64, n int, write bool) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	i := sort.Search(len(s.table), func(i int) bool { return s.table[i].iova > iova }) - 1
	if i < 0 || iova-s.table[i].iova >= uint64(s.table[i].size) {
		return nil, s.fault(iova, n, write, "no mapping")
	}
	m := &s.table[i]
	off := int(iova - m.iova)
	switch {
	case n > m.size-off:
		return nil, s.fault(iova, n, write, fmt.Sprintf("runs %d bytes beyond its mapping", n-(m.size-off)))
	case write && !m.write:
		return nil, s.fault(iova, n, write, "mapped for reading by the device")
	case !write && !m.read:
		return nil, s.fault(iova, n, write, "mapped for writing by the device")
	}
	return bytesAt(m.addr+uintptr(off), n), nil
}

func (s *Sim) fault(iova uint64, n int, write bool, reason string) error {
	f := Fault{IOVA: iova, Len: n, Write: write, Reason: reason}
	f.Lost = slices.ContainsFunc(s.lost, func(r space) bool { return r.contains(iova) })
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	s.nfaults++
	if len(s.faults) < maxFaults {
		s.faults = append(s.faults, f)
	}
	if !f.Lost && !slices.ContainsFunc(s.expected, func(match func(Fault) bool) bool { return match(f) }) {
		s.nwrong++
		if len(s.wrong) < maxFaults {
			s.wrong = append(s.wrong, f)
		}
	}
	return fmt.Errorf("%w: %v", ErrFault, f)
}

// Faults returns the first faults, at most 64, and the total number of faults.
func (s *Sim) Faults() (first []Fault, total uint64) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	return slices.Clone(s.faults), s.nfaults
}

// ExpectFaults declares that Close must not report later faults for which match returns true. Faults with Lost set are
// always expected. match must not use the Sim.
func (s *Sim) ExpectFaults(match func(Fault) bool) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	s.expected = append(s.expected, match)
}

// wrongFaults returns an error about the unexpected faults, or nil if there were none.
func (s *Sim) wrongFaults() error {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	if s.nwrong == 0 {
		return nil
	}
	return fmt.Errorf("tegrasim: %w: %d accesses were refused that nobody expects, first: %v", ErrFault, s.nwrong, s.wrong[0])
}
