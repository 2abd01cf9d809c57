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

	"github.com/tegracast/tegracast/pipeline"
)

// endTime is how long everything may take that is closed at the end, from the signal or the fault on. What has not ended by then is left to
// the end of the process.
const endTime = 4500 * time.Millisecond

// linesTime is how long GPIO lines may take that are put back after endTime.
const linesTime = 300 * time.Millisecond

// An ending watches the end of the service. A nil one watches nothing.
type ending struct {
	log   *slog.Logger
	begun chan struct{} // closed when the end begins

	mu        sync.Mutex
	once      sync.Once
	err       error // why it ends; nil: a signal
	steps     []string
	appliance *Appliance // nil: it is being opened
}

// within does serve, which ends when ctx does, or earlier, and after that within endTime. Else what has not ended is named in the log, and
// the result is that of an end without it: the caller ends the process.
func within(ctx context.Context, log *slog.Logger, serve func(*ending) error) error {
	e, ended := &ending{log: log, begun: make(chan struct{})}, make(chan error, 1)
	defer context.AfterFunc(ctx, func() { e.begin(nil) })()
	go func() { ended <- serve(e) }()
	select { // ends: the end begins when ctx ends
	case err := <-ended:
		return err
	case <-e.begun:
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(endTime):
		return e.leave()
	}
}

// begin says that the end has begun, and why. The first reason counts.
func (e *ending) begin(why error) {
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

// of says what is to be ended.
func (e *ending) of(a *Appliance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a.ending, e.appliance = e, a
}

// step does something of which the log is told when it does not end.
func (e *ending) step(what string, do func()) {
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

// leave tells what has not ended, and puts GPIO lines back, which nobody else does.
func (e *ending) leave() error {
	e.mu.Lock()
	a, steps, err := e.appliance, slices.Clone(e.steps), e.err
	e.mu.Unlock()
	if a != nil {
		steps = append(steps, a.unended()...)
	}
	e.log.Error("not everything has ended in time: what is left ends with the process, which the kernel holds while a file system or a device does not answer",
		"not ended", strings.Join(steps, ", "), "waited", endTime)
	if a == nil {
		return err
	}
	back := make(chan error, 1)
	go func() { back <- a.lines.Close(nil) }()
	select {
	case failed := <-back:
		return errors.Join(err, failed)
	case <-time.After(linesTime):
		e.log.Error("the GPIO lines have not been put back")
		return err
	}
}

// unended names the sources and outputs that have not ended.
func (a *Appliance) unended() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flows {
		if f.done == nil || f.ended() {
			continue
		}
		list = append(list, "source "+f.name)
		for _, o := range f.outputs {
			if o.attached.Status().State != pipeline.Ended {
				list = append(list, "output "+o.name)
			}
		}
	}
	return list
}

// unheld is err, but for what is held because a recording waits for its disk: that has been told, and it is free when the disk answers.
func (a *Appliance) unheld(what string, err error) error {
	if err != nil && a.disks.Hanging() {
		text, _, _ := strings.Cut(err.Error(), "\n")
		a.env.Log.Warn("closed with errors, since a recording whose disk hangs holds frames: what is left is free with the process", "what", what, "error", text)
		return nil
	}
	return err
}
