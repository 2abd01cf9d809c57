// SPDX-License-Identifier: Apache-2.0

package tegra_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tegracast/tegracast/tegra"
)

// buffer is an allocation in the stress test: while it is locked for reading it is not freed.
type buffer struct {
	sync.RWMutex
	first int
	id    atomic.Uint64
}

const bufferPages = 4

// Goroutines get, use, release, free, reallocate and revoke at random: a pin that is handed out lets the device write
// the buffer that is there now, the limit holds, and in the end everything is unpinned.
func TestCacheStress(t *testing.T) {
	const workers, rounds, limit = 6, 400, 20
	w := newWorld(t, 12*bufferPages, limit)
	w.pinner.room.Store(24 * page) // less than all may ask for: pins fail
	defer func() { w.pinner.room.Add(1<<40 - 24*page) }()
	buffers := make([]buffer, 12)
	for i := range buffers {
		buffers[i].first = i * bufferPages
	}
	w.ids = func(addr uintptr) (uint64, error) { return buffers[(addr-w.base)/page/bufferPages].id.Load(), nil }
	var group sync.WaitGroup
	var handed, failed atomic.Int64
	for n := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			var held []*tegra.Registration
			for range rounds {
				b := &buffers[rng.IntN(len(buffers))]
				switch k := rng.IntN(10); {
				case k == 0: // free and allocate again, revoked by the notifier
					b.Lock()
					w.pinner.Invalidate(w.at(b.first), bufferPages*page)
					b.id.Add(1)
					b.Unlock()
				case k == 1: // the same out of an allocator's pool: nothing is unmapped
					b.Lock()
					b.id.Add(1)
					b.Unlock()
				default:
					if r := useBuffer(t, w, b, rng, n); r != nil {
						handed.Add(1)
						held = append(held, r)
					} else {
						failed.Add(1)
					}
				}
				for len(held) > 0 && (len(held) > 2 || rng.IntN(2) == 0) {
					if err := held[0].Release(); err != nil {
						t.Error(err)
					}
					held = held[1:]
				}
				if s := w.Stats(); s.Pinned > limit*page && s.Unused > 0 || s.Pinned < 0 || s.Unused < 0 {
					t.Errorf("%+v", s)
				}
			}
			for _, r := range held {
				if err := r.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if handed.Load() < workers*rounds/4 {
		t.Errorf("%d handed out, %d failed", handed.Load(), failed.Load())
	}
	s := w.Stats()
	if s.Pinned != s.Unused || s.Pinned > limit*page || s.Hits == 0 || s.Evicted == 0 || s.Invalidated == 0 {
		t.Errorf("%+v", s)
	}
}

// useBuffer registers a part of a buffer and lets the device write there.
func useBuffer(t *testing.T, w *world, b *buffer, rng *rand.Rand, worker int) *tegra.Registration {
	b.RLock()
	defer b.RUnlock()
	addr := w.at(b.first) + uintptr(rng.IntN(bufferPages)*page)
	size := page
	if rng.IntN(2) == 0 {
		addr, size = w.at(b.first), bufferPages*page
	}
	r, err := w.Get(addr, size, tegra.FromDevice, tegra.WriteBack)
	switch {
	case errors.Is(err, tegra.ErrFenced):
		generation, _ := w.pinner.Fenced()
		_ = w.pinner.Resume(generation)
		return nil
	case errors.Is(err, tegra.ErrOverlap), errors.Is(err, syscall.ENOMEM): // other parts, or all, are in use
		return nil
	case err != nil:
		t.Error(err)
		return nil
	}
	off := int(addr - r.Addr)
	for _, s := range r.Segments() {
		if off < s.Len {
			mark := fmt.Appendf(nil, "%016x", rng.Uint64())
			at := int(addr-w.base) + 16*worker
			if err := w.pinner.Write(s.IOVA+uint64(off+16*worker), mark); err != nil {
				t.Errorf("a stale pin was handed out: %v", err)
			} else if !bytes.Equal(w.mem[at:at+16], mark) {
				t.Error("the device wrote somewhere else")
			}
			break
		}
		off -= s.Len
	}
	return r
}
