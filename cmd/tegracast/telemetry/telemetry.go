// SPDX-License-Identifier: Apache-2.0

// Package telemetry connects an appliance with the message bus: results of its outputs, triggers, recordings, faults from
// the log, and the board's health. It also exports the board's sensors as metrics, and logs when the board is throttled.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/bus"
	"github.com/tegracast/tegracast/pipeline/report"
)

// waiting is the maximum number of events that wait, for example while a reload replaces the publisher.
const waiting = 256

// A Bus publishes messages while it is open. All methods may be called concurrently.
type Bus struct {
	open   atomic.Bool
	events chan bus.Happened
	missed atomic.Uint64 // events dropped for lack of room

	mu        sync.RWMutex
	publisher *bus.Publisher // nil: none
	close     func() error
}

// New returns a closed Bus.
func New() *Bus { return &Bus{events: make(chan bus.Happened, waiting)} }

// Open starts publishing as c configures it, and stores waiting messages in folder. If c is nil, nothing is published.
// A previous publisher is closed first; if that fails, Open returns the error and opens no other.
func (b *Bus) Open(c *config.Bus, folder string, log *slog.Logger) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.open.Store(b.publisher != nil) }()
	err := b.closePublisher()
	if err != nil || c == nil {
		return err
	}
	server, err := c.Remote()
	if err != nil {
		return err
	}
	p, err := bus.New(bus.Config{Server: server, Board: c.Board, Folder: folder, Limit: int64(c.Store.V), Logger: log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, told := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(told)
		b.forward(ctx, p)
	}()
	running, stop := context.WithCancel(context.Background())
	go func() { ended <- p.Run(running) }()
	b.publisher, b.close = p, func() error {
		cancel()
		<-told // ends: cancel has ended its context
		stop()
		return <-ended // ends: stop has ended its context
	}
	return nil
}

// Close ends publishing: the publisher sends what it can, and stores the rest.
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open.Store(false)
	return b.closePublisher()
}

func (b *Bus) closePublisher() error {
	if b.publisher == nil {
		return nil
	}
	err := b.close()
	b.publisher = nil
	return err
}

// forward publishes events in order until ctx has ended and none waits.
func (b *Bus) forward(ctx context.Context, p *bus.Publisher) {
	for {
		for range b.missed.Swap(0) {
			p.Missed()
		}
		select {
		case e := <-b.events:
			p.Event(e)
			continue
		default:
		}
		select {
		case e := <-b.events:
			p.Event(e)
		case <-ctx.Done():
			return
		}
	}
}

// queueEvent queues an event. It never blocks: it drops the event if the bus is closed or the queue is full.
func (b *Bus) queueEvent(e bus.Happened) {
	if !b.open.Load() {
		return
	}
	select {
	case b.events <- e:
	default:
		b.missed.Add(1)
	}
}

// with calls f with the publisher and returns its error. If there is no publisher, it returns an error.
func (b *Bus) with(f func(*bus.Publisher) error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.publisher == nil {
		return errors.New("the bus is closed")
	}
	return f(b.publisher)
}

// Results returns a function that publishes the results of an output's frames.
func (b *Bus) Results(output string) func(report.Report) error {
	return func(r report.Report) error {
		return b.with(func(p *bus.Publisher) error { return p.Results(output, r) })
	}
}

// Stats returns the publisher's counters, or false if nothing is published.
func (b *Bus) Stats() (st bus.Stats, is bool) {
	is = b.with(func(p *bus.Publisher) error { st = p.Stats(); return nil }) == nil
	return st, is
}

// Status returns the bus's part of a status line, or "" if nothing is published.
func (b *Bus) Status() string {
	st, is := b.Stats()
	switch {
	case !is:
		return ""
	case !st.Connected:
		return fmt.Sprintf("  | bus away, %d messages wait, lost %d", st.Waiting, st.Lost())
	}
	return fmt.Sprintf("  | bus %d messages lost %d", st.Published, st.Lost())
}

// Print prints the publisher's counters, or nothing if nothing is published.
func (b *Bus) Print(w io.Writer) {
	if st, is := b.Stats(); is {
		fmt.Fprintf(w, "bus: %d messages published, %d wait, lost %d\n", st.Published, st.Waiting, st.Lost())
	}
}
