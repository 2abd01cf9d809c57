// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An OutputState tells whether an output runs, and if not, whether it will again.
type OutputState string

const (
	Running  OutputState = "running"
	Retrying OutputState = "retrying" // it has failed, and is opened again
	Ended    OutputState = "ended"    // its source has ended, or it has failed and cannot be opened again
	Stopped  OutputState = "stopped"  // by a person; no output of a graph is
)

// An OutputStatus is the state of an output, and why.
type OutputStatus struct {
	State OutputState `json:"state"`
	Error string      `json:"error,omitempty"` // why it is retrying, or with what it ended
	Since *time.Time  `json:"since,omitempty"` // it is retrying
	Next  *time.Time  `json:"next,omitempty"`  // it is opened again
}

// Pauses before an output is opened again: the first, and the longest; they double.
const (
	FirstReopen = 500 * time.Millisecond
	LastReopen  = 30 * time.Second
)

// settledRun is how long an output must run for the next fault to be a new one.
const settledRun = LastReopen

var errReturned = errors.New("it has ended by itself")

func (o *Output) start(hard context.Context) {
	ctx, cancel := context.WithCancel(hard)
	o.cancel = cancel
	o.graph.wg.Go(func() {
		defer close(o.done)
		defer cancel()
		s := outputSupervisor{output: o, hard: ctx, sink: o.cfg.Sink}
		s.run()
		o.consumer.queue.drain()
	})
}

// Retry has an output that has failed be opened again at once. It reports whether it had failed.
func (o *Output) Retry() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != Retrying {
		return false
	}
	select {
	case o.again <- struct{}{}:
	default:
	}
	return true
}

// Err is why the output does not run, or the error with which it ended; nil: it runs, or has ended as it should.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Status returns the current state of the output.
func (o *Output) Status() OutputStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := OutputStatus{State: o.state}
	if o.err != nil {
		s.Error = o.err.Error()
	}
	if since, next := o.since, o.next; o.state == Retrying {
		s.Since, s.Next = &since, &next
	}
	return s
}

// outputSupervisor runs the sinks of an output, one after the other, until no frame comes any more.
type outputSupervisor struct {
	Recovery
	output *Output
	hard   context.Context // ends when sinks must
	sink   Sink            // nil: the next one must be opened
	end    context.CancelFunc
	log    FaultLog
	told   bool // the log knows of a fault
}

func (s *outputSupervisor) run() {
	o := s.output
	ctx, end := context.WithCancel(s.hard)
	defer end()
	s.end = end
	o.graph.wg.Go(func() {
		select {
		case <-o.consumer.queue.over:
			end()
		case <-ctx.Done():
		}
	})
	s.Recovery = Recovery{First: FirstReopen, Last: LastReopen, Now: o.again}
	err := s.Run(ctx, s.attempt, s.letGo)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state = Ended
	if err = abnormal(err); !errors.Is(err, context.Canceled) {
		o.err = err
	}
}

// attempt runs a sink until it ends. Where no frame comes any more it is the last one.
func (s *outputSupervisor) attempt(ctx context.Context) (Outcome, error) {
	o := s.output
	if s.sink == nil {
		if err := s.reopen(ctx); err != nil {
			return Fruitless, err
		}
	}
	began := time.Now()
	err := s.sink.Run(s.hard, o.consumer.queue)
	s.sink = nil
	select {
	case <-o.consumer.queue.over:
		s.end()
		if s.hard.Err() != nil {
			return Fruitless, nil
		}
		if err = abnormal(err); err != nil {
			o.graph.cfg.Logger.Error("output ended with an error", "output", o.cfg.Name, "error", err)
			o.graph.check("output "+o.cfg.Name, err)
		}
		return Fruitless, err
	default:
	}
	if err = abnormal(err); err == nil {
		err = errReturned
	}
	if time.Since(began) >= settledRun {
		return Settled, err
	}
	return Fleeting, err
}

// reopen has another sink take the place of the one that has failed.
func (s *outputSupervisor) reopen(ctx context.Context) error {
	o := s.output
	sink, err := o.cfg.Reopen(ctx)
	if err == nil {
		err = o.adopt(sink.Needs())
	}
	if err != nil {
		return err
	}
	s.sink = sink
	o.consumer.queue.resume()
	o.set(Running, nil)
	if s.told && s.log.Calm(time.Now()) {
		s.told = false
		o.graph.cfg.Logger.Info("output was opened again", "output", o.cfg.Name)
	}
	return nil
}

// adopt has the output be one of a sink with these needs.
func (o *Output) adopt(needs SinkNeeds) error {
	if o.cfg.Depth+max(needs.Holds, 1) > o.consumer.holds || !takes(needs.Format, o.point.format) {
		return fmt.Errorf("%w: the output needs something else than before", ErrNegotiation)
	}
	o.graph.mu.Lock()
	defer o.graph.mu.Unlock()
	if err := o.point.announceSlots(needs.UseSlot); err != nil {
		return err
	}
	o.consumer.useSlot = needs.UseSlot
	return nil
}

func (o *Output) set(state OutputState, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state, o.err = state, why
}

// letGo has nothing be made for the output until it is opened again.
func (s *outputSupervisor) letGo(_ context.Context, fault error) (atOnce bool) {
	o := s.output
	o.consumer.queue.rest()
	o.graph.mu.Lock()
	o.consumer.useSlot = nil
	o.graph.mu.Unlock()
	now, what := time.Now(), "output failed, and is opened again"
	o.mu.Lock()
	if o.state == Running && s.Attempts == 1 {
		o.since = now
	}
	o.state, o.err, o.next = Retrying, fault, now.Add(s.Pause())
	o.mu.Unlock()
	o.faults.Add(1)
	if o.cfg.Reopen == nil || DeviceLost(fault) {
		what = "output ended"
		s.end()
	}
	o.graph.cfg.Recorder.Record(o.cfg.Name, EventFault, 0, 0)
	if left, due := s.log.Due("", now); due {
		s.told = true
		o.graph.cfg.Logger.Error(what, Unlogged([]any{"output", o.cfg.Name, "error", fault}, left)...)
	}
	o.graph.check("output "+o.cfg.Name, fault)
	return false
}
