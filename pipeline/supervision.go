// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An OutputState describes whether an output is running, and if not, whether it will run again.
type OutputState string

const (
	Running  OutputState = "running"
	Retrying OutputState = "retrying" // it has failed, and will be reopened
	Ended    OutputState = "ended"    // no more frames come, it was detached, or it has failed and is not reopened
	Stopped  OutputState = "stopped"  // by a client; not used for outputs of a graph
)

// An OutputStatus is the state of an output and its cause.
type OutputStatus struct {
	State OutputState `json:"state"`
	Error string      `json:"error,omitempty"` // why it is retrying, or the error with which it ended
	Since *time.Time  `json:"since,omitempty"` // start of the retries; nil if it is not retrying
	Next  *time.Time  `json:"next,omitempty"`  // time of the next attempt to reopen; nil like Since
}

// The first and the longest pause before an output is reopened; pauses double.
const (
	FirstReopen = 500 * time.Millisecond
	LastReopen  = 30 * time.Second
)

// settledRun is the time for which an output must run for the next fault to count as a new one.
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

// Retry makes the graph reopen a failed output now instead of after the pause. It reports whether the output was
// waiting to be reopened.
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

// Err returns the reason why the output is not running, or the error with which it ended. It returns nil if the output
// is running or has ended normally.
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

// outputSupervisor supervises an output that a graph has attached: it runs the output's sinks, one after another, until
// no more frames come. Outputs that are not attached, because a client has stopped them or they could not be opened
// yet, are supervised in cmd/tegracast/appliance/supervisor.go, cameras in capture/supervisor.go.
type outputSupervisor struct {
	Recovery
	output *Output
	hard   context.Context // ends when sinks must end
	sink   Sink            // nil if the next one must be opened
	end    context.CancelFunc
	log    FaultLog
	told   bool // the log contains a fault whose end is not yet logged
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

// attempt reopens the sink if necessary, and runs it until it ends. If no more frames will come, it ends the output.
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

// reopen replaces the failed sink by a new one.
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

// adopt checks that the output can use a sink with the given needs, and announces the slots to it.
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

// letGo records a fault, and stops frames from being made for the output until it is reopened. If it cannot be
// reopened, letGo ends the output. It always returns false, because each attempt to reopen an output follows a pause.
func (s *outputSupervisor) letGo(_ context.Context, fault error) (atOnce bool) {
	o := s.output
	o.consumer.queue.rest()
	o.graph.mu.Lock()
	o.consumer.useSlot = nil
	o.graph.mu.Unlock()
	now, what := time.Now(), "output failed; will retry"
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
