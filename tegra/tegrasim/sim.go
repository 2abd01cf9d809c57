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
	"github.com/tegracast/tegracast/tegra/uapi"
	"github.com/tegracast/tegracast/tegra/vma"
)

// DefaultMaxSegment is the maximum DMA segment of a PCI function in bytes, unless its driver sets a different one.
const DefaultMaxSegment = 64 << 10

// Config says how pins are mapped.
type Config struct {
	Seed uint64 // for the lengths and the order of segments

	// MaxSegment and MeanSegment are the maximum and the mean segment size in bytes, multiples of tegra.PageSize. 0
	// means DefaultMaxSegment and about half of MaxSegment, respectively.
	MaxSegment, MeanSegment int

	// Contiguous gives every pin one segment, whatever its size.
	Contiguous bool

	// Attr returns the cache attribute that the memory at an address was allocated with, if known; a pin that expects
	// the other attribute is rejected. nil: always unknown.
	Attr func(addr uintptr) (tegra.CacheAttr, bool)
}

// Sim is one PCI Express function's view of memory. It implements tegra.Pinner and tegra.Fencer; Read and Write are for
// the device. All methods may be called concurrently.
type Sim struct {
	cfg Config

	// mu is the SMMU's page table lock: accesses of the device hold it for reading while they last, so while it is held
	// for writing none is in flight.
	mu     sync.RWMutex
	rng    *rand.Rand
	iovas  spaces
	table  []mapping // sorted by bus address
	owners map[*owner]struct{}
	fenced bool
	fence  uint64  // generation of the latest fence
	lost   []space // addresses lost by revocations, or unpinned behind the fence, since it was last lifted
	gone   bool
	closed bool
	refuse func(call uint) unix.Errno // nil: all calls are carried out

	faultMu  sync.Mutex
	faults   []Fault // the first maxFaults
	nfaults  uint64
	expected []func(Fault) bool
	wrong    []Fault // the first maxFaults unexpected ones
	nwrong   uint64
}

// owner is a pin or coherent memory that has not been released.
type owner struct {
	what   string
	addr   uintptr
	size   int
	live   bool // mapped
	pin    bool
	revoke func(tegra.Reason)
	stack  []byte
}

// New returns a function without any mapping. It is fenced, like one that has not been used yet, because its engine
// might be running.
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
		iovas:  spaces{next: firstIOVA},
		owners: make(map[*owner]struct{}),
		fenced: true,
		fence:  1,
	}, nil
}

// Pin implements tegra.Pinner. The memory stays where it is; its owner must call Invalidate before freeing it.
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
	if err := vma.Check(addr, size, dir == tegra.FromDevice); err != nil {
		return nil, fmt.Errorf("pin %#x: %w: %w", addr, tegra.ErrRange, err)
	}
	o := &owner{what: "pin", addr: addr, size: size, live: true, pin: true, stack: debug.Stack()}

	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(uapi.CallPin); err != nil {
		return nil, fmt.Errorf("pin %#x, %d bytes: %w", addr, size, err)
	}
	if other := s.overlapping(addr, size); other != nil {
		return nil, fmt.Errorf("pin %#x, %d bytes: %w: %d bytes at %#x",
			addr, size, tegra.ErrOverlap, other.size, other.addr)
	}
	segments := s.mapSegments(o, dir == tegra.ToDevice, dir == tegra.FromDevice, s.segmentLengths(size))
	var p *tegra.Pin
	p, o.revoke = tegra.NewPin(r, segments, &pinMapping{s: s, o: o})
	s.owners[o] = struct{}{}
	return p, nil
}

// allowed returns an error if the function has gone, the Sim is closed, or the call is to be refused.
func (s *Sim) allowed(call uint) error {
	switch {
	case s.closed:
		return tegra.ErrClosed
	case s.gone:
		return tegra.CallError(call, unix.ENODEV)
	case s.refuse != nil:
		if errno := s.refuse(call); errno != 0 {
			return tegra.CallError(call, errno)
		}
	}
	return nil
}

// admit returns an error if no pin or allocation can be made.
func (s *Sim) admit(call uint) error {
	if err := s.allowed(call); err != nil {
		return err
	}
	switch {
	case s.fenced:
		return fmt.Errorf("%w (generation %d)", tegra.CallError(call, unix.ESTALE), s.fence)
	case len(s.owners) == tegra.MaxPins:
		return fmt.Errorf("%w: %d pins and allocations are the most", tegra.CallError(call, unix.ENOSPC), tegra.MaxPins)
	}
	return nil
}

// release ends a pin or an allocation. One that ended with the function has already been forgotten.
func (s *Sim) release(o *owner) error {
	if err := s.allowed(uapi.CallPut); err != nil && !errors.Is(err, tegra.ErrClosed) && !errors.Is(err, tegra.ErrGone) {
		return err
	}
	if s.fenced {
		s.lose(o)
	} else {
		s.unmap(o)
	}
	delete(s.owners, o)
	return nil
}

// overlapping returns a live pin that shares memory with a range, or nil.
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

type pinMapping struct {
	s    *Sim
	o    *owner
	done bool // Unmap has succeeded
}

func (m *pinMapping) Unmap() error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	err := m.s.release(m.o)
	m.done = err == nil
	return err
}

// Release retries what Unmap could not do, as tegra.Device does.
func (m *pinMapping) Release() error {
	if m.done {
		return nil
	}
	return m.Unmap()
}

// Invalidate takes memory away from the device before it is freed, remapped or protected: it is the MMU notifier of
// this back end (GPUDirect RDMA 12.9 §11.3). Every pin that shares memory with the range is revoked: when Invalidate
// returns, accesses in flight have ended, none can begin, and the free callbacks have run. If there was such a pin, the
// device is fenced afterwards.
func (s *Sim) Invalidate(addr uintptr, size int) {
	if size <= 0 {
		return
	}
	s.revoke(tegra.ReasonInvalidate, func(o *owner) bool { return overlap(o.addr, o.size, addr, size) })
}

// InvalidateAny revokes one of the live pins as if its memory were about to be freed, to demonstrate or test the effect
// of a revocation on a stream. n, modulo the number of live pins, selects the pin in the order of addresses.
// InvalidateAny returns false if there is none.
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

// revoke takes the matching pins away from the device, raises the fence if one of them was live, and then notifies
// their holders.
func (s *Sim) revoke(reason tegra.Reason, match func(*owner) bool) {
	var hit []*owner
	s.mu.Lock()
	for o := range s.owners {
		if !o.pin || !match(o) {
			continue
		}
		hit = append(hit, o)
		if o.live {
			s.lose(o)
			s.fenced = true
			s.fence++
		}
	}
	s.mu.Unlock()
	for _, o := range hit {
		o.revoke(reason)
	}
}

// Fenced reports whether the device is fenced, and returns the generation of the fence.
func (s *Sim) Fenced() (generation uint64, fenced bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.fence, s.fenced
}

// Resume lifts the fence after the engine was reset. generation must be the value returned by Fenced before the reset:
// if it has changed, the fence was raised again in between, and the error wraps tegra.ErrGeneration.
func (s *Sim) Resume(generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.allowed(uapi.CallControl); err != nil {
		return fmt.Errorf("resume generation %d: %w", generation, err)
	}
	if generation != s.fence {
		return fmt.Errorf("resume generation %d: %w: it is %d", generation, tegra.CallError(uapi.CallControl, unix.EAGAIN), s.fence)
	}
	s.fenced, s.lost = false, nil
	return nil
}

// Fence implements tegra.Fencer.
func (s *Sim) Fence() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.allowed(uapi.CallControl); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	s.fenced = true
	s.fence++
	return nil
}

// Unplug removes the function, as in a hot-unplug: its pins are revoked, it loses access to coherent memory, and
// nothing more can be pinned or allocated.
func (s *Sim) Unplug() {
	s.mu.Lock()
	s.gone, s.fenced = true, true
	for o := range s.owners {
		if !o.pin && o.live {
			s.lose(o)
		}
	}
	s.mu.Unlock()
	s.revoke(tegra.ReasonUnplug, func(*owner) bool { return true })
}

// Close ends every mapping and revokes the remaining pins. The error lists the pins and the coherent memory that were
// not released, with the stacks that created them, and unexpected accesses that were rejected (see ExpectFaults). The
// error of a second Close wraps tegra.ErrClosed.
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
	slices.SortFunc(leaks, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	s.revoke(tegra.ReasonUnplug, func(*owner) bool { return true })
	return errors.Join(append(leaks, s.wrongFaults())...)
}
