// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// shutdownTime is the time for closing everything at the end, counted from the signal or the fault. Parts that have not
// ended by then are left to the end of the process.
const shutdownTime = 4500 * time.Millisecond

// lastTime is the time limit, after shutdownTime, for naming the parts that have not ended. The same limit applies
// again to restoring what outlives the process.
const lastTime = 300 * time.Millisecond

// A shutdown limits how long the service takes to end. A nil shutdown only runs the steps.
type shutdown struct {
	log   *slog.Logger
	begun chan struct{} // closed when the shutdown begins

	mu    sync.Mutex
	once  sync.Once
	err   error // the reason; nil: a signal
	steps []string
	left  func() []string // names the parts that have not ended, besides the steps; nil: nothing is open
	last  func() error    // restores what outlives the process; nil: nothing
}

// boundShutdown runs serve. When ctx ends, or serve reports a fault by Begin, it waits up to shutdownTime for serve to
// return. If serve does not, it logs the parts that have not ended and returns as if they had; the caller ends the
// process. If ctx has ended the service, the shutdown is no failure: its errors are logged, and the result is nil.
func boundShutdown(ctx context.Context, log *slog.Logger, serve func(*shutdown) error) error {
	e, ended := &shutdown{log: log, begun: make(chan struct{})}, make(chan error, 1)
	defer context.AfterFunc(ctx, func() { e.Begin(nil) })()
	go func() { ended <- serve(e) }()
	var err error
	select { // ends: the shutdown begins when ctx ends
	case err = <-ended:
	case <-e.begun:
		select {
		case err = <-ended:
		case <-time.After(shutdownTime):
			err = e.leave()
		}
	}
	if e.AskedFor(ctx) && err != nil {
		log.Error("not everything has ended in order", "error", err)
		return nil
	}
	return err
}

// AskedFor reports whether the shutdown began because ctx ended, and not because of an earlier fault.
func (e *shutdown) AskedFor(ctx context.Context) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ctx.Err() != nil && e.err == nil
}

// Begin records that the shutdown has begun, and why. Only the first call counts.
func (e *shutdown) Begin(why error) {
	if e == nil {
		return
	}
	e.once.Do(func() {
		e.mu.Lock()
		e.err = why
		e.mu.Unlock()
		close(e.begun)
	})
}

// Of sets functions for the end: left names the parts that have not ended, and last restores what outlives the process,
// such as GPIO lines.
func (e *shutdown) Of(left func() []string, last func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left, e.last = left, last
}

// Step runs do as a step that is logged if it does not end in time.
func (e *shutdown) Step(what string, do func()) {
	if e == nil {
		do()
		return
	}
	e.mu.Lock()
	e.steps = append(e.steps, what)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.steps = slices.DeleteFunc(e.steps, func(s string) bool { return s == what })
	}()
	do()
}

// leave logs the parts that have not ended, and restores what outlives the process. Both are bounded in time. It
// returns the reason for the shutdown and the error of restoring.
func (e *shutdown) leave() error {
	e.mu.Lock()
	steps, left, last, err := slices.Clone(e.steps), e.left, e.last, e.err
	e.mu.Unlock()
	if left != nil {
		steps = append(steps, soon(left)...)
	}
	e.log.Error("not everything has ended in time: what is left ends with the process, which the kernel holds while a file system or a device does not answer",
		"not ended", strings.Join(steps, ", "), "waited", shutdownTime)
	if last == nil {
		return err
	}
	return errors.Join(err, soon(last))
}

// soon runs do and returns its result, or the zero value if do takes longer than lastTime.
func soon[T any](do func() T) (result T) {
	done := make(chan T, 1)
	go func() { done <- do() }()
	select {
	case result = <-done:
	case <-time.After(lastTime):
	}
	return result
}
