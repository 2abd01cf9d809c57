// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrDamaged is wrapped by what a reader of a frame that fills gets when the frame turns out to be damaged, cut short, or
// taken back by a revocation.
var ErrDamaged = errors.New("the frame is damaged")

// An arrival is how far a frame has come that was handed on before it was complete. Its zero value is that of a complete
// frame.
type arrival struct {
	state atomic.Int32 // whole, filling or damaged
	lines atomic.Int32 // that may be read while the frame fills

	mu      sync.Mutex // held for a few instructions
	err     error      // of a damaged frame
	waiting []*Waiter
	idle    []*blocked // kept, so that waiting allocates nothing
}

// States of an arrival.
const (
	whole = iota
	filling
	damaged
)

// A Waiter is told when lines of a frame are there. It belongs to who waits, and waits for one frame at a time.
type Waiter struct {
	Wake  func() // is called once, by the goroutine that the lines come from, and must not wait
	lines int32
	joins bool
}

// blocked is a goroutine that waits for lines.
type blocked struct {
	Waiter
	wake chan struct{} // has room for one
}

// Whole is more lines than any frame has: who waits for them waits for Finish.
const Whole = math.MaxInt32

// Fill begins a frame that is handed on before it is complete. Only the source or stage that leased the frame calls it,
// before anybody else has it. From then on it calls Arrive as lines come, and Finish once.
//
// Until Finish, readers may use Bytes of the first Lines lines, Format, Device, Sequence, Times.ExposureStart and
// Times.Uncertainty, which do not change any more; all else is set when the frame is complete.
func (f *Frame) Fill() {
	f.arrival.lines.Store(0)
	f.arrival.state.Store(filling)
}

// Filling says whether the frame is not complete yet, or has turned out to be damaged.
func (f *Frame) Filling() bool { return f.arrival.state.Load() != whole }

// Arrive says that the first lines lines may be read from now on. It never goes back.
func (f *Frame) Arrive(lines int) {
	a := &f.arrival
	if int32(lines) <= a.lines.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines.Store(int32(lines))
	a.rouse(int32(lines))
}

// Finish ends a frame that fills. With a nil error it is complete; with another one it is damaged, which readers see by an
// error that wraps ErrDamaged and err.
func (f *Frame) Finish(err error) {
	a := &f.arrival
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
	if err == nil {
		a.state.Store(whole)
	} else {
		a.err = &damage{err}
		a.state.Store(damaged)
	}
	a.rouse(Whole)
}

// damage is why a frame is damaged.
type damage struct{ why error }

func (d *damage) Error() string { return ErrDamaged.Error() + ": " + d.why.Error() }

func (d *damage) Is(target error) bool { return target == ErrDamaged }

func (d *damage) Unwrap() error { return d.why }

// rouse wakes who waits for no more lines than there are.
func (a *arrival) rouse(lines int32) {
	left := a.waiting[:0]
	for _, w := range a.waiting {
		if w.lines > lines {
			left = append(left, w)
			continue
		}
		w.joins = false
		w.Wake()
	}
	clear(a.waiting[len(left):])
	a.waiting = left
}

// Lines is how many lines may be read: all of a complete frame.
func (f *Frame) Lines() int {
	if f.arrival.state.Load() == whole {
		return f.Format.Height
	}
	return int(f.arrival.lines.Load())
}

// WaitLines waits until at least n lines may be read, and returns how many may. An error wraps ErrDamaged, also where the
// lines were there before, or is ctx's.
func (f *Frame) WaitLines(ctx context.Context, n int) (int, error) {
	if err := f.await(ctx, int32(n)); err != nil {
		return 0, err
	}
	return f.Lines(), nil
}

// WaitWhole waits until the frame is complete. An error is as that of WaitLines.
func (f *Frame) WaitWhole(ctx context.Context) error { return f.await(ctx, Whole) }

func (f *Frame) await(ctx context.Context, n int32) error {
	a := &f.arrival
	if a.state.Load() == whole {
		return nil
	}
	a.mu.Lock()
	there, err := a.reached(n)
	a.mu.Unlock()
	if there {
		return err
	}
	b := a.block()
	defer a.unblock(b)
	for {
		_, there, err := f.Await(&b.Waiter, int(n))
		if there {
			return err
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Await is WaitLines for who cannot block: if there is false, w.Wake is called when it is worth to ask again. The last
// Await says there, or Forget follows.
func (f *Frame) Await(w *Waiter, n int) (lines int, there bool, err error) {
	a := &f.arrival
	a.mu.Lock()
	defer a.mu.Unlock()
	if there, err = a.reached(int32(n)); there {
		return f.Lines(), true, err
	}
	if w.lines = int32(n); !w.joins {
		w.joins = true
		a.waiting = append(a.waiting, w)
	}
	return 0, false, nil
}

// Forget ends a wait before there is an answer.
func (f *Frame) Forget(w *Waiter) {
	a := &f.arrival
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(w)
}

// reached says whether who waits for n lines has an answer: they are there, or the frame has ended.
func (a *arrival) reached(n int32) (bool, error) {
	switch a.state.Load() {
	case whole:
		return true, nil
	case damaged:
		return true, a.err
	}
	return a.lines.Load() >= n, nil
}

// block takes what a goroutine waits with.
func (a *arrival) block() *blocked {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last := len(a.idle) - 1; last >= 0 {
		b := a.idle[last]
		a.idle = a.idle[:last]
		return b
	}
	b := &blocked{wake: make(chan struct{}, 1)}
	b.Wake = func() {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return b
}

// unblock gives it back, without a wake-up that nobody has seen.
func (a *arrival) unblock(b *blocked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(&b.Waiter)
	select {
	case <-b.wake:
	default:
	}
	a.idle = append(a.idle, b)
}

// leave takes a waiter off.
func (a *arrival) leave(w *Waiter) {
	if w.joins {
		w.joins = false
		a.waiting = slices.DeleteFunc(a.waiting, func(x *Waiter) bool { return x == w })
	}
}
