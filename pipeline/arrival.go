// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"math"
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
	waiting []*arrivalWaiter
	idle    []*arrivalWaiter // kept, so that waiting allocates nothing
}

// States of an arrival.
const (
	whole = iota
	filling
	damaged
)

// An arrivalWaiter waits for a number of lines.
type arrivalWaiter struct {
	lines int32
	wake  chan struct{} // has room for one
}

// untilEnd is more lines than any frame has: who waits for them waits for Finish.
const untilEnd = math.MaxInt32

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
	a.rouse(untilEnd)
}

// damage is why a frame is damaged.
type damage struct{ why error }

func (d *damage) Error() string { return ErrDamaged.Error() + ": " + d.why.Error() }

func (d *damage) Is(target error) bool { return target == ErrDamaged }

func (d *damage) Unwrap() error { return d.why }

// rouse wakes who waits for no more lines than there are.
func (a *arrival) rouse(lines int32) {
	for _, w := range a.waiting {
		if w.lines <= lines {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
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
func (f *Frame) WaitWhole(ctx context.Context) error { return f.await(ctx, untilEnd) }

func (f *Frame) await(ctx context.Context, n int32) error {
	a := &f.arrival
	if a.state.Load() == whole {
		return nil
	}
	var w *arrivalWaiter
	for {
		a.mu.Lock()
		there, err := a.reached(n)
		switch {
		case there && w != nil:
			a.leave(w)
		case !there && w == nil:
			w = a.join(n)
		}
		a.mu.Unlock()
		if there {
			return err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			a.mu.Lock()
			a.leave(w)
			a.mu.Unlock()
			return ctx.Err()
		}
	}
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

// join adds a waiter.
func (a *arrival) join(n int32) *arrivalWaiter {
	var w *arrivalWaiter
	if last := len(a.idle) - 1; last >= 0 {
		w, a.idle = a.idle[last], a.idle[:last]
	} else {
		w = &arrivalWaiter{wake: make(chan struct{}, 1)}
	}
	w.lines = n
	a.waiting = append(a.waiting, w)
	return w
}

// leave takes a waiter off, with a wake-up that it has not seen.
func (a *arrival) leave(w *arrivalWaiter) {
	for i, x := range a.waiting {
		if x == w {
			last := len(a.waiting) - 1
			a.waiting[i], a.waiting[last] = a.waiting[last], nil
			a.waiting = a.waiting[:last]
			break
		}
	}
	select {
	case <-w.wake:
	default:
	}
	a.idle = append(a.idle, w)
}
