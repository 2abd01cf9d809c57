// SPDX-License-Identifier: Apache-2.0

package tegra_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

const page = tegra.PageSize

// pinner counts and refuses.
type pinner struct {
	*tegrasim.Sim
	pins  atomic.Int64
	room  atomic.Int64 // bytes that may be pinned; ENOMEM beyond
	delay time.Duration
}

func (p *pinner) Pin(addr uintptr, size int, dir tegra.Direction, attr tegra.CacheAttr) (*tegra.Pin, error) {
	time.Sleep(p.delay)
	if p.room.Add(-int64(size)) < 0 {
		p.room.Add(int64(size))
		return nil, fmt.Errorf("pin %#x: %w", addr, syscall.ENOMEM)
	}
	pin, err := p.Sim.Pin(addr, size, dir, attr)
	if err != nil {
		p.room.Add(int64(size))
		return nil, err
	}
	p.pins.Add(1)
	pin.OnFree(func(tegra.Reason) { p.room.Add(int64(size)) })
	return pin, nil
}

// world is memory, a device that pins it, and a cache.
type world struct {
	*tegra.Cache
	pinner *pinner
	mem    []byte
	base   uintptr
	ids    func(addr uintptr) (uint64, error)
}

func newWorld(t testing.TB, pages, limit int) *world {
	t.Helper()
	sim, err := tegrasim.New(tegrasim.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{pinner: &pinner{Sim: sim}, mem: mem, base: uintptr(unsafe.Pointer(&mem[0]))}
	w.pinner.room.Store(1 << 40)
	w.Cache, err = tegra.NewCache(tegra.CacheConfig{Pinner: w.pinner, Limit: int64(limit * page), ID: func(addr uintptr) (uint64, error) {
		if w.ids == nil {
			return 7, nil
		}
		return w.ids(addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil && !errors.Is(err, tegra.ErrClosed) {
			t.Error(err)
		}
		if room := w.pinner.room.Load(); room != 1<<40 {
			t.Errorf("%d bytes are still pinned", 1<<40-room)
		}
		if err := errors.Join(sim.Close(), unix.Munmap(mem)); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) at(p int) uintptr { return w.base + uintptr(p*page) }

func (w *world) get(t testing.TB, first, pages int) *tegra.Registration {
	t.Helper()
	r, err := w.Get(w.at(first), pages*page, tegra.FromDevice, tegra.WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// use gets and releases.
func (w *world) use(t testing.TB, first, pages int) *tegra.Registration {
	t.Helper()
	r := w.get(t, first, pages)
	if err := r.Release(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) resume(t testing.TB) {
	t.Helper()
	if generation, fenced := w.pinner.Fenced(); fenced {
		if err := w.pinner.Resume(generation); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCacheKeepsWhatWasReleased(t *testing.T) {
	w := newWorld(t, 32, 16)
	a := w.use(t, 0, 8)
	for _, c := range []struct{ first, pages int }{{0, 8}, {3, 2}, {7, 1}} {
		if r := w.use(t, c.first, c.pages); r != a {
			t.Errorf("pages %+v are registered again", c)
		}
	}
	// Any bytes: whole pages are pinned.
	r, err := w.Get(w.at(10)+100, 5000, tegra.FromDevice, tegra.WriteBack)
	if err != nil || r.Addr != w.at(10) || r.Size != 2*page {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := r.Release(); err != nil {
		t.Error(err)
	}
	if err := r.Release(); !errors.Is(err, tegra.ErrUnpinned) {
		t.Errorf("second release: %v", err)
	}
	if s := w.Stats(); s.Hits != 3 || s.Misses != 2 || s.Pinned != 10*page || s.Unused != 10*page || w.pinner.pins.Load() != 2 {
		t.Errorf("%+v, %d pins", s, w.pinner.pins.Load())
	}
}

func TestCacheEvictsTheLeastRecentlyUsed(t *testing.T) {
	w := newWorld(t, 64, 8)
	a, b := w.use(t, 0, 4), w.use(t, 8, 4)
	if w.use(t, 0, 4) != a { // now b is the older one
		t.Error("a is gone")
	}
	held := w.get(t, 16, 4)
	if w.use(t, 0, 4) != a {
		t.Error("the more recently used one was evicted")
	}
	if w.use(t, 8, 4) == b { // evicts a
		t.Error("b is still there")
	}
	// Everything in use: the limit gives way, and is kept as soon as something is released.
	more := []*tegra.Registration{w.get(t, 24, 8), w.get(t, 40, 8)}
	if s := w.Stats(); s.Pinned != 20*page || s.Unused != 0 {
		t.Errorf("%+v", s)
	}
	for _, r := range append(more, held) {
		if err := r.Release(); err != nil {
			t.Error(err)
		}
		if s := w.Stats(); s.Pinned > 8*page && s.Unused > 0 {
			t.Errorf("%+v", s)
		}
	}
	if used := 1<<40 - w.pinner.room.Load(); used > 8*page {
		t.Errorf("%d bytes are pinned, the limit is %d", used, 8*page)
	}
}

func TestCacheEvictsWhenAPinFails(t *testing.T) {
	w := newWorld(t, 64, 64)
	w.pinner.room.Store(12 * page)
	defer w.pinner.room.Add(1<<40 - 12*page)
	w.use(t, 0, 4)
	w.use(t, 8, 4)
	c := w.get(t, 16, 4)
	r := w.get(t, 24, 8) // both unused ones have to go
	if s := w.Stats(); s.Evicted != 2 {
		t.Errorf("%+v", s)
	}
	if _, err := w.Get(w.at(40), page, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("all is in use: %v", err)
	}
	if err := errors.Join(c.Release(), r.Release()); err != nil {
		t.Error(err)
	}
	w.use(t, 40, 1)
}

func TestCacheAndRevocation(t *testing.T) {
	w := newWorld(t, 32, 32)
	unused, held := w.use(t, 0, 4), w.get(t, 8, 4)
	w.pinner.Invalidate(w.at(0), 12*page)
	w.resume(t)
	select {
	case <-held.Revoked():
	default:
		t.Error("the holder is not told")
	}
	if w.use(t, 0, 4) == unused {
		t.Error("a revoked pin is handed out")
	}
	again := w.get(t, 8, 4) // although the old one is still held
	if again == held {
		t.Error("a revoked pin that is in use is handed out")
	}
	if s := w.Stats(); s.Invalidated != 2 || s.Pinned != 8*page {
		t.Errorf("%+v", s)
	}
	if err := errors.Join(held.Release(), again.Release()); err != nil {
		t.Error(err)
	}
}

func TestCacheAsksForTheBuffer(t *testing.T) {
	w := newWorld(t, 32, 32)
	id, bad := uint64(1), error(nil)
	w.ids = func(uintptr) (uint64, error) { return id, bad }
	a := w.use(t, 0, 4)
	id = 2 // freed and allocated again, without anything that revoked it
	b := w.get(t, 0, 4)
	if a == b {
		t.Error("the pin of another buffer is handed out")
	}
	id = 3
	if _, err := w.Get(w.at(0), page, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, tegra.ErrOverlap) {
		t.Errorf("the old buffer's pin is in use: %v", err)
	}
	if err := b.Release(); err != nil {
		t.Error(err)
	}
	if s := w.Stats(); s.Pinned != 0 {
		t.Errorf("released, of no use, and pinned: %+v", s)
	}
	w.use(t, 0, 4)
	bad = errors.New("CUDA_ERROR_INVALID_VALUE")
	if _, err := w.Get(w.at(0), page, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, bad) {
		t.Errorf("no buffer: %v", err)
	}
	if s := w.Stats(); s.Pinned != 0 || s.Invalidated != 3 {
		t.Errorf("%+v", s)
	}
}

func TestCacheRefusals(t *testing.T) {
	w := newWorld(t, 32, 32)
	held := w.get(t, 4, 4)
	for name, c := range map[string]struct {
		first, size int
		dir         tegra.Direction
		attr        tegra.CacheAttr
		want        error
	}{
		"across":          {2, 4 * page, tegra.FromDevice, tegra.WriteBack, tegra.ErrOverlap},
		"other direction": {4, page, tegra.ToDevice, tegra.WriteBack, tegra.ErrOverlap},
		"other attribute": {4, page, tegra.FromDevice, tegra.WriteCombined, tegra.ErrCacheAttr},
		"nothing":         {10, 0, tegra.FromDevice, tegra.WriteBack, tegra.ErrRange},
		"less":            {4, -1, tegra.FromDevice, tegra.WriteBack, tegra.ErrRange},
		"no direction":    {10, page, 0, tegra.WriteBack, tegra.ErrDirection},
	} {
		if _, err := w.Get(w.at(c.first), c.size, c.dir, c.attr); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := w.Get(^uintptr(0)-100, 50, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, tegra.ErrRange) {
		t.Errorf("end of the address space: %v", err)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
	w.use(t, 2, 4) // unused ones make way
	for _, cfg := range []tegra.CacheConfig{{}, {Pinner: w.pinner, Limit: -1}} {
		if _, err := tegra.NewCache(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestCacheCloseNamesLeaks(t *testing.T) {
	w := newWorld(t, 32, 32)
	w.use(t, 0, 4)
	held, lost := w.get(t, 8, 4), w.get(t, 16, 4)
	w.pinner.Invalidate(w.at(16), page)
	w.resume(t)
	err := w.Close()
	for _, r := range []*tegra.Registration{held, lost} {
		if want := fmt.Sprintf("%#x", r.Addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, err := w.Get(w.at(0), page, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, tegra.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if err := errors.Join(held.Release(), lost.Release()); err != nil { // late, and harmless
		t.Error(err)
	}
}

// Misses of the same memory at once pin it once.
func TestCacheConcurrentMisses(t *testing.T) {
	w := newWorld(t, 32, 32)
	w.pinner.delay = 2 * time.Millisecond
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			r, err := w.Get(w.at(0), 8*page, tegra.FromDevice, tegra.WriteBack)
			if err != nil {
				t.Error(err)
			} else if err := r.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := w.pinner.pins.Load(); n != 1 {
		t.Errorf("%d pins", n)
	}
}

func TestCacheHitDoesNotAllocate(t *testing.T) {
	w := newWorld(t, 32, 32)
	w.use(t, 0, 8)
	if n := testing.AllocsPerRun(1000, func() { w.use(t, 2, 2) }); n != 0 {
		t.Errorf("%v allocations a hit", n)
	}
}

// BenchmarkCacheHit is Get and Release of memory that is registered, among 64 registrations, against pinning it.
func BenchmarkCacheHit(b *testing.B) {
	w := newWorld(b, 64*4, 64*4)
	for i := range 64 {
		w.use(b, 4*i, 4)
	}
	b.Run("hit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r, err := w.Get(w.at(4*33), 4*page, tegra.FromDevice, tegra.WriteBack)
			if err != nil {
				b.Fatal(err)
			}
			if err := r.Release(); err != nil {
				b.Fatal(err)
			}
		}
	})
	sim, err := tegrasim.New(tegrasim.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("pin", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pin, err := sim.Pin(w.at(4*33), 4*page, tegra.FromDevice, tegra.WriteBack)
			if err != nil {
				b.Fatal(err)
			}
			if err := pin.Unpin(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
