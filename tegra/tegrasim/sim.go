// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
)

// DefaultMaxSegment is a PCI function's largest DMA segment in bytes, unless its driver sets another one.
const DefaultMaxSegment = 64 << 10

// Config is how pins are mapped.
type Config struct {
	Seed uint64 // of the lengths and the order of segments

	// MaxSegment and MeanSegment are the largest and the mean segment in bytes, multiples of tegra.PageSize.
	// 0 is DefaultMaxSegment, and half of MaxSegment.
	MaxSegment, MeanSegment int

	// Contiguous gives every pin one segment, whatever its size.
	Contiguous bool

	// Attr says what cache attribute the memory at an address was allocated with, if it knows; a pin that expects
	// the other one is refused. nil knows nothing.
	Attr func(addr uintptr) (tegra.CacheAttr, bool)
}

// Sim is one PCI Express function's view of memory. It implements tegra.Pinner; its Read and Write are the device's
// side. All methods may be called concurrently.
type Sim struct {
	cfg Config

	// mu is the SMMU's page table lock: accesses of the device hold it for reading as long as they last, so that
	// whoever holds it for writing knows that none is in flight.
	mu      sync.RWMutex
	rng     *rand.Rand
	next    uint64    // bus address that was never used
	table   []mapping // sorted by bus address
	owners  map[*owner]struct{}
	fenced  bool
	fence   uint64 // generation
	closed  bool
	faultMu sync.Mutex
	faults  []Fault
	nfaults uint64
}

// owner is a pin or coherent memory as the leak check knows it.
type owner struct {
	what   string
	addr   uintptr
	size   int
	live   bool // mapped
	pin    bool
	revoke func(tegra.Reason)
	stack  []byte
}

// New makes a function without any mapping.
func New(cfg Config) (*Sim, error) {
	if cfg.MaxSegment == 0 {
		cfg.MaxSegment = DefaultMaxSegment
	}
	if cfg.MeanSegment == 0 {
		cfg.MeanSegment = max(tegra.PageSize, cfg.MaxSegment/2/tegra.PageSize*tegra.PageSize)
	}
	for name, v := range map[string]int{"MaxSegment": cfg.MaxSegment, "MeanSegment": cfg.MeanSegment} {
		if v < tegra.PageSize || v > tegra.MaxPinSize || v%tegra.PageSize != 0 {
			return nil, fmt.Errorf("tegrasim: %s %d: want a multiple of %d up to %d",
				name, v, tegra.PageSize, tegra.MaxPinSize)
		}
	}
	if cfg.MeanSegment > cfg.MaxSegment {
		return nil, fmt.Errorf("tegrasim: MeanSegment %d is more than MaxSegment %d", cfg.MeanSegment, cfg.MaxSegment)
	}
	return &Sim{
		cfg:    cfg,
		rng:    rand.New(rand.NewPCG(cfg.Seed, 0x7e62a)),
		next:   firstIOVA,
		owners: make(map[*owner]struct{}),
	}, nil
}

// Pin implements tegra.Pinner. The memory stays where it is; before its owner frees it, it calls Invalidate.
func (s *Sim) Pin(addr uintptr, size int, dir tegra.Direction, attr tegra.CacheAttr) (*tegra.Pin, error) {
	r := tegra.Request{Addr: addr, Size: size, Direction: dir, Attr: attr}
	if err := r.Check(); err != nil {
		return nil, err
	}
	if s.cfg.Attr != nil {
		if have, ok := s.cfg.Attr(addr); ok && have != attr {
			return nil, fmt.Errorf("pin %#x: %w: it is %v, the pin expects %v", addr, tegra.ErrCacheAttr, have, attr)
		}
	}
	if err := checkMapped(addr, size, dir == tegra.FromDevice); err != nil {
		return nil, err
	}
	o := &owner{what: "pin", addr: addr, size: size, live: true, pin: true, stack: debug.Stack()}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch other := s.overlapping(addr, size); {
	case s.closed:
		return nil, fmt.Errorf("pin %#x: %w", addr, tegra.ErrClosed)
	case s.fenced:
		return nil, fmt.Errorf("pin %#x: %w (generation %d)", addr, tegra.ErrFenced, s.fence)
	case len(s.owners) == tegra.MaxPins:
		return nil, fmt.Errorf("pin %#x: %w: %d pins and allocations are the most", addr, unix.ENOSPC, tegra.MaxPins)
	case other != nil:
		return nil, fmt.Errorf("pin %#x, %d bytes: %w: %d bytes at %#x",
			addr, size, tegra.ErrOverlap, other.size, other.addr)
	}
	segments := s.mapSegments(o, dir == tegra.ToDevice, dir == tegra.FromDevice, s.segmentLengths(size))
	var p *tegra.Pin
	p, o.revoke = tegra.NewPin(r, segments, &pinMapping{s: s, o: o})
	s.owners[o] = struct{}{}
	return p, nil
}

// overlapping returns a live pin that shares memory with a range, nil when there is none.
func (s *Sim) overlapping(addr uintptr, size int) *owner {
	for o := range s.owners {
		if o.pin && o.live && overlap(o.addr, o.size, addr, size) {
			return o
		}
	}
	return nil
}

func overlap(a uintptr, asize int, b uintptr, bsize int) bool {
	return a < b+uintptr(bsize) && b < a+uintptr(asize)
}

// pinMapping is the tegra.Mapping of a pin.
type pinMapping struct {
	s *Sim
	o *owner
}

func (m *pinMapping) Unmap() error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.unmap(m.o)
	return nil
}

func (m *pinMapping) Release() error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	delete(m.s.owners, m.o)
	return nil
}

// Invalidate takes memory from the device that is about to be freed, remapped or protected: the mmu notifier of this
// back end (GPUDirect RDMA 12.9 §11.3). Every pin that shares memory with the range is revoked: when Invalidate
// returns, accesses in flight have ended, none can begin, and the free callbacks have run. If there was such a pin
// the device is fenced afterwards.
func (s *Sim) Invalidate(addr uintptr, size int) {
	if size <= 0 {
		return
	}
	s.revoke(tegra.ReasonInvalidate, func(o *owner) bool { return overlap(o.addr, o.size, addr, size) })
}

// InvalidateAny revokes one of the live pins as if its memory were about to be freed: for demonstrations and tests of
// what a revocation does to a stream. n chooses it, in the order of addresses. It reports whether there was one.
func (s *Sim) InvalidateAny(n uint64) bool {
	s.mu.RLock()
	var live []*owner
	for o := range s.owners {
		if o.pin && o.live {
			live = append(live, o)
		}
	}
	s.mu.RUnlock()
	if len(live) == 0 {
		return false
	}
	slices.SortFunc(live, func(a, b *owner) int { return cmp.Compare(a.addr, b.addr) })
	o := live[n%uint64(len(live))]
	s.Invalidate(o.addr, o.size)
	return true
}

// revoke takes the pins that match from the device, then tells their holders.
func (s *Sim) revoke(reason tegra.Reason, match func(*owner) bool) {
	var hit []*owner
	s.mu.Lock()
	for o := range s.owners {
		if !o.pin || !match(o) {
			continue
		}
		hit = append(hit, o)
		if o.live {
			s.unmap(o)
			if !s.fenced {
				s.fenced = true
				s.fence++
			}
		}
	}
	s.mu.Unlock()
	for _, o := range hit {
		o.revoke(reason)
	}
}

// Fenced reports whether a revocation has fenced the device, and the generation of the fence.
func (s *Sim) Fenced() (generation uint64, fenced bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.fence, s.fenced
}

// Resume lifts the fence after the engine was reset. generation is what Fenced returned before the reset: another
// one means that memory was revoked in between.
func (s *Sim) Resume(generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("resume: %w", tegra.ErrClosed)
	case generation != s.fence:
		return fmt.Errorf("resume generation %d: %w: it is %d", generation, tegra.ErrGeneration, s.fence)
	}
	s.fenced = false
	return nil
}

// Close ends every mapping. Its error names the pins and the coherent memory that nobody has given back, with the
// stack that made them.
func (s *Sim) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("tegrasim: %w", tegra.ErrClosed)
	}
	s.closed = true
	var leaks []error
	for o := range s.owners {
		leaks = append(leaks, fmt.Errorf("tegrasim: leaked %s of %d bytes at %#x, made by:\n%s",
			o.what, o.size, o.addr, o.stack))
	}
	s.table = nil
	s.mu.Unlock()
	slices.SortFunc(leaks, func(a, b error) int { return len(a.Error()) - len(b.Error()) })
	s.revoke(tegra.ReasonUnplug, func(*owner) bool { return true })
	return errors.Join(leaks...)
}
