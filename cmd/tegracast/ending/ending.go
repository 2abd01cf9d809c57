// SPDX-License-Identifier: Apache-2.0

// Package ending bounds the end of the service, and tells the log what has not ended in time.
package ending

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limit is how long everything may take that is closed at the end, from the signal or the fault on. What has not ended by then is left to
// the end of the process.
const Limit = 4500 * time.Millisecond

// lastTime is how long it may take to put back what outlives the process, after Limit.
const lastTime = 300 * time.Millisecond

// An End is that of the service. A nil one is watched by nobody.
type End struct {
	log   *slog.Logger
	begun chan struct{} // closed when the end begins

	mu    sync.Mutex
	once  sync.Once
	err   error // why it ends; nil: a signal
	steps []string
	left  func() []string // what else has not ended; nil: nothing is open
	last  func() error    // puts back what nobody else does
}

// Within does serve, which ends when ctx does, or earlier, and after that within Limit. Else what has not ended is named in the log, and
// the result is that of an end without it: the caller ends the process. An end that was asked for, by ctx, is no failure: the log tells
// what went wrong in it, and the result is nil.
func Within(ctx context.Context, log *slog.Logger, serve func(*End) error) error {
	e, ended := &End{log: log, begun: make(chan struct{})}, make(chan error, 1)
	defer context.AfterFunc(ctx, func() { e.Begin(nil) })()
	go func() { ended <- serve(e) }()
	var err error
	select { // ends: the end begins when ctx ends
	case err = <-ended:
	case <-e.begun:
		select {
		case err = <-ended:
		case <-time.After(Limit):
			err = e.leave()
		}
	}
	if e.AskedFor(ctx) && err != nil {
		log.Error("not everything has ended in order", "error", err)
		return nil
	}
	return err
}

// AskedFor reports whether the end has begun by that of ctx, and not by a fault before it.
func (e *End) AskedFor(ctx context.Context) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ctx.Err() != nil && e.err == nil
}

// Begin says that the end has begun, and why. The first reason counts.
func (e *End) Begin(why error) {
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

// Of says what else is to be ended: left names what has not, and last puts back what outlives the process, such as GPIO lines.
func (e *End) Of(left func() []string, last func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left, e.last = left, last
}

// Step does something of which the log is told when it does not end.
func (e *End) Step(what string, do func()) {
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

// leave tells what has not ended, and puts back what outlives the process. Neither may take long.
func (e *End) leave() error {
	e.mu.Lock()
	steps, left, last, err := slices.Clone(e.steps), e.left, e.last, e.err
	e.mu.Unlock()
	if left != nil {
		steps = append(steps, soon(left)...)
	}
	e.log.Error("not everything has ended in time: what is left ends with the process, which the kernel holds while a file system or a device does not answer",
		"not ended", strings.Join(steps, ", "), "waited", Limit)
	if last == nil {
		return err
	}
	return errors.Join(err, soon(last))
}

// soon does something, and returns its result, or nothing where that takes long.
func soon[T any](do func() T) (result T) {
	done := make(chan T, 1)
	go func() { done <- do() }()
	select {
	case result = <-done:
	case <-time.After(lastTime):
	}
	return result
}
