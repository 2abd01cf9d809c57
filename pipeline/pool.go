// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// A Slot is the memory of one frame. See Frame for who may write to it.
type Slot struct {
	Bytes  []byte
	Device uintptr
	File   *os.File     // memory file that contains Bytes from Offset on, for other processes to map; nil if there is none
	Offset int64        // bytes
	Close  func() error // frees the memory; may be nil
}

// An Allocator allocates the slots of the graph's output pools.
type Allocator interface {
	AllocSlot(f Format) (Slot, error)
}

// ErrLeaked is wrapped by the error of Pool.Close if frames are still held.
var ErrLeaked = errors.New("frames were never released")

// A Pool owns a fixed set of slots of one format. Every slot is free or leased.
type Pool struct {
	name   string
	format Format
	onFree func(slot int)

	mu     sync.Mutex
	frames []*Frame
	slots  []Slot
	free   []int // slots, the most recently freed last
	freed  chan struct{}
}

type lease struct {
	holders atomic.Int32
	place   [1]uintptr // caller that leased it, for the leak report; a full stack trace would take a microsecond
}

// NewPool returns a pool of the given slots, which it then owns. onFree, if not nil, is called with the index of each
// slot whose last lease was released. No lock is held during the call.
func NewPool(name string, f Format, slots []Slot, onFree func(slot int)) *Pool {
	p := &Pool{name: name, format: f, onFree: onFree, freed: make(chan struct{}, 1)}
	p.grow(slots)
	return p
}

func (p *Pool) grow(slots []Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range slots {
		i := len(p.slots)
		p.slots = append(p.slots, s)
		p.frames = append(p.frames, &Frame{Format: p.format, Bytes: s.Bytes, Device: s.Device, index: i, slot: i, pool: p, file: s.File, offset: s.Offset})
		p.free = append(p.free, i)
	}
}

// slot returns slot i, or false if there are fewer slots.
func (p *Pool) slot(i int) (Slot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i >= len(p.slots) {
		return Slot{}, false
	}
	return p.slots[i], true
}

// Len returns the number of slots.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots)
}

// Get leases a free slot and returns its frame, or nil if no slot is free.
func (p *Pool) Get() *Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return nil
	}
	i := p.free[n-1]
	p.free = p.free[:n-1]
	return p.take(i)
}

// Wait leases a free slot and returns its frame. If no slot is free, it waits for one, or returns ctx's error when ctx
// ends.
func (p *Pool) Wait(ctx context.Context) (*Frame, error) {
	for {
		if f := p.Get(); f != nil {
			return f, nil
		}
		select {
		case <-p.freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Lease leases slot i and returns its frame, or an error if the slot is not free. It is for sources whose hardware
// chooses the slot.
func (p *Pool) Lease(i int) (*Frame, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, v := range p.free {
		if v == i {
			p.free = append(p.free[:k], p.free[k+1:]...)
			return p.take(i), nil
		}
	}
	return nil, fmt.Errorf("pool %s: slot %d of %d is not free", p.name, i, len(p.slots))
}

func (p *Pool) take(i int) *Frame {
	f := p.frames[i]
	f.Sequence, f.Group, f.Times, f.Flags, f.CRC, f.Ready, f.Results = 0, 0, Times{}, 0, 0, nil, f.Results[:0]
	f.Bytes, f.emitter = p.slots[i].Bytes, nil
	f.arrival.state.Store(whole)
	f.lease.holders.Store(1)
	runtime.Callers(3, f.lease.place[:])
	return f
}

// Slot returns the index of the frame's slot in its pool, or in the pool of the source or stage that made the frame if
// a stage has passed it on (StageNeeds.Passes).
func (f *Frame) Slot() int { return f.slot }

// File returns the memory file and the offset at which other processes find Bytes; file is nil if there is none. The
// file belongs to the slot.
func (f *Frame) File() (file *os.File, offset int64) { return f.file, f.offset }

// Retain adds a holder, which must call Release as well before the slot can be reused.
func (f *Frame) Retain() {
	if f.lease.holders.Add(1) < 2 {
		panic("pipeline: Retain of a frame that was released")
	}
}

// Release gives up one lease. The last one frees the slot. The caller must not use the frame afterwards.
func (f *Frame) Release() {
	switch n := f.lease.holders.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("pipeline: frame released more often than retained")
	}
	p, viewed := f.pool, f.viewed
	f.viewed = nil
	p.mu.Lock()
	p.free = append(p.free, f.index)
	p.mu.Unlock()
	select {
	case p.freed <- struct{}{}:
	default:
	}
	if p.onFree != nil {
		p.onFree(f.index)
	}
	if viewed != nil {
		viewed.Release()
	}
}

// view makes f, whose slot has no memory, a second frame in the memory of from, which it holds until the last holder of
// f has called Release.
func (f *Frame) view(from *Frame) {
	from.Retain()
	f.viewed = from
	f.Bytes, f.Device, f.CRC, f.slot, f.file, f.offset = from.Bytes, from.Device, from.CRC, from.slot, from.file, from.offset
}

// Leased returns the number of slots that are leased.
func (p *Pool) Leased() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots) - len(p.free)
}

// Close frees the slots' memory. If frames are still held, it frees nothing and returns an error that wraps ErrLeaked
// and lists each such frame with the place that leased it.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var leaks strings.Builder
	for _, f := range p.frames {
		if n := f.lease.holders.Load(); n > 0 {
			fmt.Fprintf(&leaks, "\n  slot %d, sequence %d, %d holders, leased at", f.slot, f.Sequence, n)
			frames := runtime.CallersFrames(f.lease.place[:])
			for {
				c, more := frames.Next()
				if c.Function != "" {
					fmt.Fprintf(&leaks, "\n    %s %s:%d", c.Function, c.File, c.Line)
				}
				if !more {
					break
				}
			}
		}
	}
	if leaks.Len() > 0 {
		return fmt.Errorf("pool %s: %w:%s", p.name, ErrLeaked, leaks.String())
	}
	var errs []error
	for _, s := range p.slots {
		if s.Close != nil {
			errs = append(errs, s.Close())
		}
	}
	p.slots, p.frames, p.free = nil, nil, nil
	return errors.Join(errs...)
}
