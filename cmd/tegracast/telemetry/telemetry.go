// SPDX-License-Identifier: Apache-2.0

// Package telemetry connects an appliance with the message bus: results of its outputs, triggers, recordings, faults of the log, and the
// board's health.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/bus"
	"github.com/tegracast/tegracast/pipeline/web"
)

// waiting is how many events may wait, as while a reload exchanges the publisher.
const waiting = 256

// A Bus publishes, while it is open. All methods may be called concurrently.
type Bus struct {
	open   atomic.Bool
	events chan bus.Happened
	missed atomic.Uint64 // events for which there was no room

	mu        sync.RWMutex
	publisher *bus.Publisher // nil: there is none
	close     func() error
}

// New is closed.
func New() *Bus { return &Bus{events: make(chan bus.Happened, waiting)} }

// Open publishes as c says, and keeps in folder what waits; nil: nothing is published any more. What was open is closed before.
func (b *Bus) Open(c *readers.Bus, folder string, log *slog.Logger) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.open.Store(b.publisher != nil) }()
	err := b.end()
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

// Close has the publisher give the server what it can, and keep the rest.
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open.Store(false)
	return b.end()
}

func (b *Bus) end() error {
	if b.publisher == nil {
		return nil
	}
	err := b.close()
	b.publisher = nil
	return err
}

// forward publishes events in their order, and those that wait when ctx ends.
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

// tell publishes an event. It never waits.
func (b *Bus) tell(e bus.Happened) {
	if !b.open.Load() {
		return
	}
	select {
	case b.events <- e:
	default:
		b.missed.Add(1)
	}
}

// with calls f with the publisher, if there is one.
func (b *Bus) with(f func(*bus.Publisher) error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.publisher == nil {
		return errors.New("the bus is closed")
	}
	return f(b.publisher)
}

// Results publishes the results of frames of an output.
func (b *Bus) Results(output string) func(pipeline.Report) error {
	return func(r pipeline.Report) error {
		return b.with(func(p *bus.Publisher) error { return p.Results(output, r) })
	}
}

// stats are the publisher's; false: there is none.
func (b *Bus) stats() (st bus.Stats, is bool) {
	is = b.with(func(p *bus.Publisher) error { st = p.Stats(); return nil }) == nil
	return st, is
}

func lost(st bus.Stats) uint64 { return st.Full + st.Failed + st.Refused }

// View is for the state of everything; nil: nothing is published.
func (b *Bus) View() *web.Bus {
	st, is := b.stats()
	if !is {
		return nil
	}
	return &web.Bus{
		Server: st.Server, Connected: st.Connected, Trouble: st.Trouble, Published: st.Published, Waiting: st.Waiting,
		Stored: st.Stored, Lost: lost(st),
	}
}

// Status is for a status line; empty: nothing is published.
func (b *Bus) Status() string {
	st, is := b.stats()
	switch {
	case !is:
		return ""
	case !st.Connected:
		return fmt.Sprintf("  | bus away, %d messages wait, lost %d", st.Waiting, lost(st))
	}
	return fmt.Sprintf("  | bus %d messages lost %d", st.Published, lost(st))
}

// Print prints what the server has got.
func (b *Bus) Print(w io.Writer) {
	if st, is := b.stats(); is {
		fmt.Fprintf(w, "bus: %d messages published, %d wait, lost %d\n", st.Published, st.Waiting, lost(st))
	}
}
