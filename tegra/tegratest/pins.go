// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
)

// untouched checks that the function is fenced when it is opened, and that rejected requests do not fence it.
func untouched(t *testing.T, b *bench) {
	f := b.cfg.Open
	b.close()
	b.f = f(t)
	if _, fenced := b.f.Fenced(); !fenced {
		t.Error("not fenced when it is opened")
	}
	if err := b.tryAlloc(1); !errors.Is(err, tegra.ErrFenced) {
		t.Errorf("coherent memory before Resume: %v", err)
	}
	b.resume()
	if err := b.tryPin(tegra.PageSize, tegra.PageSize, tegra.ToDevice); !errors.Is(err, tegra.ErrRange) {
		t.Error(err)
	}
	if _, fenced := b.f.Fenced(); fenced {
		t.Error("fenced by a request that was refused")
	}
}

func segments(t *testing.T, b *bench) {
	const pages = 600
	m := b.memory(pages)
	in, out := b.pin(m, 0, pages/2, tegra.FromDevice), b.pin(m, pages/2, pages/2, tegra.ToDevice)
	var all []tegra.Segment
	for _, p := range []*tegra.Pin{in, out} {
		sum := 0
		for _, s := range p.Segments {
			if s.Len <= 0 || s.Len%tegra.PageSize != 0 || s.IOVA%tegra.PageSize != 0 {
				t.Errorf("segment of %d bytes at %#x", s.Len, s.IOVA)
			}
			sum += s.Len
		}
		if sum != p.Size {
			t.Errorf("segments of %d bytes, the pin has %d", sum, p.Size)
		}
		all = append(all, p.Segments...)
	}
	for i, a := range all {
		for _, c := range all[:i] {
			if a.IOVA < c.IOVA+uint64(c.Len) && c.IOVA < a.IOVA+uint64(a.Len) {
				t.Errorf("segments %+v and %+v overlap", a, c)
			}
		}
	}
	for _, p := range []*tegra.Pin{in, out} {
		if err := p.Unpin(); err != nil {
			t.Error(err)
		}
	}
}

func overlap(t *testing.T, b *bench) {
	m := b.memory(8)
	p := b.pin(m, 2, 4, tegra.FromDevice)
	for _, c := range []struct{ first, pages int }{{2, 4}, {0, 3}, {5, 3}, {3, 1}, {0, 8}} {
		for _, dir := range []tegra.Direction{tegra.FromDevice, tegra.ToDevice} {
			if q, err := b.f.Pin(m.page(c.first), c.pages*tegra.PageSize, dir, tegra.WriteBack); !errors.Is(err, tegra.ErrOverlap) {
				t.Errorf("pages %d to %d, %v: %v %v", c.first, c.first+c.pages, dir, q, err)
			}
		}
	}
	before, after := b.pin(m, 0, 2, tegra.ToDevice), b.pin(m, 6, 2, tegra.FromDevice)
	for _, p := range []*tegra.Pin{before, p, after} {
		if err := p.Unpin(); err != nil {
			t.Error(err)
		}
	}
	if err := b.pin(m, 0, 8, tegra.ToDevice).Unpin(); err != nil {
		t.Error(err)
	}
}

func unpin(t *testing.T, b *bench) {
	m := b.memory(2)
	var reasons []tegra.Reason
	for range 100 { // handles and bus addresses are reused
		p := b.pin(m, 0, 2, tegra.FromDevice)
		p.OnFree(func(r tegra.Reason) { reasons = append(reasons, r) })
		if err := p.Unpin(); err != nil {
			t.Fatal(err)
		}
		if err := p.Unpin(); !errors.Is(err, tegra.ErrUnpinned) {
			t.Errorf("second unpin: %v", err)
		}
		select {
		case <-p.Revoked():
			t.Error("an unpin looks like a revocation")
		default:
		}
	}
	for _, r := range reasons {
		if r != tegra.ReasonUnpin {
			t.Errorf("callback said %v", r)
		}
	}
	if len(reasons) != 100 {
		t.Errorf("%d callbacks of 100 pins", len(reasons))
	}
	if _, fenced := b.f.Fenced(); fenced {
		t.Error("fenced by an unpin")
	}
}

func manyAtATime(t *testing.T, b *bench) {
	const workers, rounds = 4, 25
	m := b.memory(workers * 4)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range rounds {
				p, err := b.f.Pin(m.page(4*w), 4*tegra.PageSize, tegra.FromDevice, tegra.WriteBack)
				if err != nil {
					t.Error(err)
					return
				}
				if err := p.Unpin(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// tooMany pins and allocates until the back end refuses. Releasing something must make room again.
func tooMany(t *testing.T, b *bench) {
	m := b.memory(tegra.MaxPins / 2)
	var closers []func() error
	for i := range tegra.MaxPins / 2 {
		closers = append(closers, b.pin(m, i, 1, tegra.FromDevice).Unpin)
	}
	for range tegra.MaxPins / 2 {
		c, err := b.f.AllocCoherent(tegra.PageSize)
		if err != nil {
			t.Fatalf("after %d pins and allocations: %v", len(closers), err)
		}
		closers = append(closers, c.Close)
	}
	extra := b.memory(1)
	for range 2 {
		if p, err := b.f.Pin(extra.page(0), tegra.PageSize, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("pin %d: %v, %v", len(closers)+1, p, err)
		}
		if c, err := b.f.AllocCoherent(tegra.PageSize); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("allocation %d: %v, %v", len(closers)+1, c, err)
		}
	}
	for _, give := range closers {
		if err := give(); err != nil {
			t.Error(err)
		}
	}
	if err := b.pin(extra, 0, 1, tegra.FromDevice).Unpin(); err != nil {
		t.Error(err)
	}
}

func coherent(t *testing.T, b *bench) {
	for _, size := range []int{0, -1, tegra.MaxCoherentSize + 1} {
		if _, err := b.f.AllocCoherent(size); !errors.Is(err, tegra.ErrSize) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	for _, size := range []int{1, tegra.PageSize, 3*tegra.PageSize + 5} {
		c, err := b.f.AllocCoherent(size)
		if err != nil {
			t.Fatal(err)
		}
		want := (size + tegra.PageSize - 1) &^ (tegra.PageSize - 1)
		if len(c.Bytes) != want || len(c.Segments) != 1 || c.Segments[0].Len != want || c.Segments[0].IOVA%tegra.PageSize != 0 {
			t.Errorf("%d bytes: %d of them, segments %+v", size, len(c.Bytes), c.Segments)
		}
		for i, v := range c.Bytes {
			if v != 0 {
				t.Fatalf("byte %d of fresh memory is %#x", i, v)
			}
			c.Bytes[i] = 0xa5
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); !errors.Is(err, tegra.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
	}
}
