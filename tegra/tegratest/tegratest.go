// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
)

// Function is an open PCI Express function.
type Function interface {
	tegra.Pinner
	tegra.Fencer
	Close() error
}

// Config describes a back end.
type Config struct {
	// Open opens a function that nobody else has open. The function must be fenced and have no pins. The suite closes
	// it; in one test pins are left at that time, and Close must return an error.
	Open func(t *testing.T) Function
	// Invalidate is called before memory of the process is unmapped, remapped, protected or discarded. nil: the back
	// end notices that by itself.
	Invalidate func(f Function, addr uintptr, size int)
	// Unplug removes the function while it is open. nil: this is not possible here.
	Unplug func(t *testing.T, f Function)
	// FirstPage means that a change of part of a pin is only noticed if it affects the pin's first page, as with
	// nv-p2p.
	FirstPage bool
}

// patience limits how long the notification of a revocation may take.
const patience = 10 * time.Second

// Run checks a back end.
func Run(t *testing.T, cfg Config) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"a function that nobody has used", untouched},
		{"segments", segments},
		{"overlap", overlap},
		{"unpin", unpin},
		{"munmap", func(t *testing.T, b *bench) { revoked(t, b, func(m memory) error { return b.munmap(m, 0, m.pages()) }) }},
		{"munmap of a part", func(t *testing.T, b *bench) { revoked(t, b, func(m memory) error { return b.munmap(m, b.part(), 1) }) }},
		{"mprotect", protected},
		{"MADV_DONTNEED", func(t *testing.T, b *bench) { revoked(t, b, func(m memory) error { return b.dontneed(m) }) }},
		{"fence", fence},
		{"a fence that is asked for", asksForFence},
		{"unpin against munmap", unpinAgainstMunmap},
		{"many at a time", manyAtATime},
		{"too many", tooMany},
		{"coherent memory", coherent},
		{"close with leaks", closeWithLeaks},
		{"unplug", unplug},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, cfg)
			defer b.close()
			c.test(t, b)
		})
	}
	for _, f := range list() {
		if f.pinner == nil {
			continue
		}
		t.Run(f.call+" of "+f.what, func(t *testing.T) {
			b := newBench(t, cfg)
			defer b.close()
			if err := f.pinner(t, b); !errors.Is(err, f.want) {
				t.Errorf("%v, want %v", err, f.want)
			}
		})
	}
}

// bench is an open function and helpers for a test.
type bench struct {
	t      *testing.T
	cfg    Config
	f      Function
	closed bool
}

func newBench(t *testing.T, cfg Config) *bench {
	b := &bench{t: t, cfg: cfg, f: cfg.Open(t)}
	b.resume()
	return b
}

func (b *bench) close() {
	if b.closed {
		return
	}
	if err := b.f.Close(); err != nil {
		b.t.Errorf("close: %v", err)
	}
}

// part returns the number of a page of a pin whose change revokes the pin.
func (b *bench) part() int {
	if b.cfg.FirstPage {
		return 0
	}
	return 1
}

// pin pins pages of m; the test must unpin them.
func (b *bench) pin(m memory, first, pages int, dir tegra.Direction) *tegra.Pin {
	b.t.Helper()
	p, err := b.f.Pin(m.page(first), pages*tegra.PageSize, dir, tegra.WriteBack)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// tryPin returns the error of a pin that must fail.
func (b *bench) tryPin(addr uintptr, size int, dir tegra.Direction) error {
	return b.never(b.f.Pin(addr, size, dir, tegra.WriteBack))
}

// never returns err. It fails the test if there is a pin, which should not exist, and unpins it.
func (b *bench) never(p *tegra.Pin, err error) error {
	if p != nil {
		b.t.Errorf("pinned: %v", p.Unpin())
	}
	return err
}

// tryAlloc returns the error of an allocation of coherent memory that must fail.
func (b *bench) tryAlloc(size int) error {
	c, err := b.f.AllocCoherent(size)
	if c != nil {
		b.t.Errorf("allocated: %v", c.Close())
	}
	return err
}

func (b *bench) unpinned(p *tegra.Pin) {
	b.t.Helper()
	if err := p.Unpin(); err != nil {
		b.t.Error(err)
	}
}

// revokeOne raises the fence by revoking a pin.
func (b *bench) revokeOne() {
	b.t.Helper()
	m := b.memory(1)
	p := b.pin(m, 0, 1, tegra.ToDevice)
	if err := b.munmap(m, 0, 1); err != nil {
		b.t.Fatal(err)
	}
	b.awaitRevoked(p)
	if err := p.Unpin(); !errors.Is(err, tegra.ErrRevoked) {
		b.t.Error(err)
	}
}

// memory is a range of pages of the process, between two pages that nothing touches: changes of a neighbour may revoke
// a pin that starts where the neighbour ends.
type memory []byte

func newMemory(t *testing.T, pages int) memory {
	t.Helper()
	whole, err := unix.Mmap(-1, 0, (pages+2)*tegra.PageSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(whole) })
	return memory(whole[tegra.PageSize : (pages+1)*tegra.PageSize])
}

func (b *bench) memory(pages int) memory { return newMemory(b.t, pages) }

func (m memory) pages() int { return len(m) / tegra.PageSize }

func (m memory) page(n int) uintptr {
	return uintptr(unsafe.Pointer(&m[0])) + uintptr(n*tegra.PageSize)
}

func (b *bench) invalidate(m memory, first, pages int) {
	if b.cfg.Invalidate != nil {
		b.cfg.Invalidate(b.f, m.page(first), pages*tegra.PageSize)
	}
}

// munmap unmaps pages and maps others in their place, so that the addresses still belong to the process.
func (b *bench) munmap(m memory, first, pages int) error {
	b.invalidate(m, first, pages)
	addr, n := unsafe.Pointer(&m[first*tegra.PageSize]), uintptr(pages*tegra.PageSize)
	_, err := unix.MmapPtr(-1, 0, addr, n, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_POPULATE)
	return err
}

func (b *bench) mprotect(m memory) error {
	b.invalidate(m, 0, m.pages())
	if err := unix.Mprotect(m, unix.PROT_READ); err != nil {
		return err
	}
	return unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE)
}

func (b *bench) dontneed(m memory) error {
	b.invalidate(m, 0, m.pages())
	return unix.Madvise(m, unix.MADV_DONTNEED)
}

// awaitRevoked waits until the holder of a pin is notified.
func (b *bench) awaitRevoked(p *tegra.Pin) {
	b.t.Helper()
	select {
	case <-p.Revoked():
	case <-time.After(patience):
		b.t.Fatalf("the pin at %#x is not revoked after %v", p.Addr, patience)
	}
}

func (b *bench) resume() {
	b.t.Helper()
	generation, fenced := b.f.Fenced()
	if !fenced {
		b.t.Fatal("not fenced")
	}
	if err := b.f.Resume(generation); err != nil {
		b.t.Fatal(err)
	}
}
