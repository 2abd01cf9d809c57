// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
)

// outPin is a line that the service drives.
type outPin struct {
	name string
	line Output
	log  *slog.Logger

	pulses, missed, errors atomic.Uint64
	on                     atomic.Bool
	failing                bool // the last change of the line failed: a failure is logged once
}

func (o *outPin) close() error { return o.line.Close() }

func (o *outPin) books() Books {
	return Books{Output: true, On: o.on.Load(), Pulses: o.pulses.Load(), Missed: o.missed.Load(), Errors: o.errors.Load()}
}

// set drives the line. It must not be called concurrently.
func (o *outPin) set(value int) error {
	err := o.line.Set(value)
	if err != nil {
		o.errors.Add(1)
		if !o.failing {
			o.log.Error("a GPIO line cannot be driven", "line", o.name, "error", err)
		}
	}
	if o.failing = err != nil; !o.failing {
		o.on.Store(value != 0)
	}
	return err
}

// flash drives 1 for d or until ctx ends, and then 0.
func (o *outPin) flash(ctx context.Context, d time.Duration) error {
	if err := o.set(1); err != nil {
		return err
	}
	o.pulses.Add(1)
	wait(ctx, d)
	return o.set(0)
}

// wait waits for d. It returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// triggerPin makes pulses at the instants of a rate (group.Instants). It omits and counts a pulse that would be late by
// half a period, because two pulses in quick succession would not trigger twice.
type triggerPin struct {
	*outPin
	rate    pipeline.Rate
	width   time.Duration
	flashes chan<- time.Time
}

func (t *triggerPin) run(ctx context.Context) {
	m := group.Metronome{Instants: group.Instants(t.rate), Slack: t.rate.Period() / 2}
	for {
		_, missed, ok := m.Next(ctx)
		if t.missed.Add(missed); !ok {
			return
		}
		select {
		case t.flashes <- time.Now():
		default: // no strobe
		}
		_ = t.flash(ctx, t.width) // set has counted the failure
	}
}

// resetPin resets the FPGA on request.
type resetPin struct {
	*outPin
	config config.Reset
	mu     sync.Mutex // serializes resets, and close: two cameras of one card may recover at the same time
}

func (r *resetPin) run(ctx context.Context) { <-ctx.Done() }

// pulse resets the FPGA, and then waits until it may be opened.
func (r *resetPin) pulse(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Info("the FPGA is reset", "line", r.name, "device", r.config.Device, "assert", r.config.Assert.V, "settle", r.config.Settle.V)
	if err := r.flash(ctx, r.config.Assert.V); err != nil {
		return err
	}
	if !wait(ctx, r.config.Settle.V) {
		return ctx.Err()
	}
	return nil
}

func (r *resetPin) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outPin.close()
}

// A mood is a state shown by the status LED.
type mood int

const (
	moodOff   mood = iota // not everything has started
	moodOn                // everything streams or waits for its trigger
	moodBlink             // something recovers or is stalled
)

// blinkEvery is half the period of a blinking LED.
const blinkEvery = 250 * time.Millisecond

type ledPin struct {
	*outPin
	state func() mood
}

func (l *ledPin) run(ctx context.Context) {
	tick := time.NewTicker(blinkEvery)
	defer tick.Stop()
	shown, lit := -1, 0
	for {
		switch l.state() {
		case moodOff:
			lit = 0
		case moodOn:
			lit = 1
		case moodBlink:
			lit ^= 1
		}
		if lit != shown && l.set(lit) == nil {
			l.pulses.Add(uint64(lit))
			shown = lit
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
