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

// ErrDamaged is wrapped by the errors of Frame's wait methods when a frame that was handed on early turns out to be
// damaged, cut short, or lost to a revocation.
var ErrDamaged = errors.New("the frame is damaged")

// An arrival records how much has arrived of a frame that was handed on before it was complete. The zero value is that
// of a complete frame.
type arrival struct {
	state atomic.Int32 // whole, filling or damaged
	lines atomic.Int32 // lines that may be read while the frame is filling

	mu      sync.Mutex // held for a few instructions
	err     error      // why the frame is damaged
	waiting []*Waiter
	idle    []*blocked // kept for reuse, so that waiting allocates nothing
}

// States of an arrival.
const (
	whole = iota
	filling
	damaged
)

// A Waiter is notified when lines of a frame have arrived. It is owned by the waiting goroutine, and waits for one
// frame at a time.
type Waiter struct {
	Wake  func() // called at most once per wait, with the frame's lock held: it must neither block nor use the frame
	lines int32
	joins bool
}

// blocked is the Waiter of a goroutine that is blocked in await.
type blocked struct {
	Waiter
	wake chan struct{} // has a capacity of one
}

// Whole is the number of lines to wait for in order to wait for Finish. It is larger than any line count.
const Whole = math.MaxInt32

// Fill marks f as filling: it will be handed on before it is complete. Only the source or stage that leased the frame
// may call it, before it hands the frame on. After that it calls Arrive as lines arrive, and Finish once.
//
// Until Finish, readers may use the first Lines lines of Bytes, and Format, Device, Sequence, Group, Times.ExposureStart
// and Times.Uncertainty, which no longer change. All other fields are set when the frame is complete.
func (f *Frame) Fill() {
	f.arrival.lines.Store(0)
	f.arrival.state.Store(filling)
}

// Filling reports whether the frame is not yet complete, or has turned out to be damaged.
func (f *Frame) Filling() bool { return f.arrival.state.Load() != whole }

// Arrive marks the first lines lines as readable. A number that is not larger than before has no effect.
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

// Finish ends the filling of a frame. If err is nil the frame is complete. Otherwise it is damaged, and readers get an
// error that wraps ErrDamaged and err.
func (f *Frame) Finish(err error) {
	if f.emitter != nil {
		f.emitter.finished(f, err != nil)
	}
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

// damage is the error of a damaged frame.
type damage struct{ why error }

func (d *damage) Error() string { return ErrDamaged.Error() + ": " + d.why.Error() }

func (d *damage) Is(target error) bool { return target == ErrDamaged }

func (d *damage) Unwrap() error { return d.why }

// rouse wakes and removes every waiter for at most the given number of lines. The caller must hold mu.
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

// Lines returns the number of lines that may be read; for a complete frame, its height.
func (f *Frame) Lines() int {
	if f.arrival.state.Load() == whole {
		return f.Format.Height
	}
	return int(f.arrival.lines.Load())
}

// WaitLines waits until at least n lines may be read or the frame is complete, and returns the number of readable
// lines. If ctx ends first, it returns ctx's error. If the frame is damaged, it returns an error that wraps ErrDamaged,
// even if the n lines had arrived.
func (f *Frame) WaitLines(ctx context.Context, n int) (int, error) {
	if err := f.await(ctx, int32(n)); err != nil {
		return 0, err
	}
	return f.Lines(), nil
}

// WaitWhole waits until the frame is complete. It returns the same errors as WaitLines.
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

// Await is WaitLines for callers that must not block. If the result there is false, the wait is not over: w.Wake will
// be called when the caller should call Await again. If it is true, lines is the number of readable lines, and err the
// error of WaitLines. The caller must repeat the call until the wait is over, or call Forget.
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

// Forget cancels a wait for which Await has not yet returned true.
func (f *Frame) Forget(w *Waiter) {
	a := &f.arrival
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(w)
}

// reached reports whether a wait for n lines is over, that is, whether they have arrived or the frame is complete or
// damaged. If it is damaged, reached also returns the error. The caller must hold mu.
func (a *arrival) reached(n int32) (bool, error) {
	switch a.state.Load() {
	case whole:
		return true, nil
	case damaged:
		return true, a.err
	}
	return a.lines.Load() >= n, nil
}

// block returns a waiter for a blocking wait, reusing an idle one if possible.
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

// unblock cancels b's wait, discards a pending wake-up, and keeps b for reuse.
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

// leave removes w from the waiters. The caller must hold mu.
func (a *arrival) leave(w *Waiter) {
	if w.joins {
		w.joins = false
		a.waiting = slices.DeleteFunc(a.waiting, func(x *Waiter) bool { return x == w })
	}
}
