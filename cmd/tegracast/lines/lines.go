// SPDX-License-Identifier: Apache-2.0

// Package lines operates the board's GPIO lines while an appliance runs: trigger, strobe, the FPGA's reset, a status LED,
// and the times of incoming edges.
package lines

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// Config is the configuration of Lines.
type Config struct {
	Board   Board                              // nil: the machine's own lines
	Cameras func() []capture.State             // states of the cameras, which the LED shows
	Health  func() (ready bool, stalled error) // state of the pipeline, which the LED shows
	// Record is called for each edge that triggers the recording of an output, with the time of the edge.
	Record func(output string, at time.Time)
	Logger *slog.Logger
}

// Lines holds the open GPIO lines. All its methods may be called concurrently.
type Lines struct {
	cfg     Config
	flashes chan time.Time                       // passes the start of each pulse from trigger to strobe
	watch   atomic.Pointer[map[string][]watcher] // the pins that use a source's frames, by source

	mu   sync.Mutex
	list map[string]*openPin
}

// openPin is a pin with its goroutine.
type openPin struct {
	pin
	source string // the source whose frames it uses; empty: none
	where  string // its place on the board
	cancel context.CancelFunc
	done   chan struct{} // nil before it runs
}

// New returns Lines without an open line.
func New(cfg Config) *Lines {
	if cfg.Board == nil {
		cfg.Board = chips{}
	}
	return &Lines{cfg: cfg, flashes: make(chan time.Time, 1), list: map[string]*openPin{}}
}

// Open opens a line, which works after Start. An error has the line's place in the configuration.
func (p *Lines) Open(l *config.Line) error {
	next, err := p.make(l)
	if err != nil {
		return l.At.Located(err)
	}
	p.mu.Lock()
	p.list[l.Name] = &openPin{pin: next, source: l.Source, where: l.Pin.String()}
	p.mu.Unlock()
	p.publish()
	return nil
}

func (p *Lines) make(l *config.Line) (pin, error) {
	switch k := l.Kind.(type) {
	case *config.TriggerIn:
		return p.input(l, false, capture.MatcherConfig{Delay: k.Delay.V, Tolerance: k.Tolerance.V, Every: true})
	case *config.RecordGPIO:
		line, err := p.cfg.Board.Input(l.Pin, consumer(l))
		if err != nil {
			return nil, err
		}
		return &recordPin{line: line, tell: func(at time.Time) { p.cfg.Record(l.Output, at) }}, nil
	case *config.PPS: // matches the nearest frame
		return p.input(l, true, capture.MatcherConfig{Tolerance: l.Period / 2})
	}
	line, err := p.cfg.Board.Output(l.Pin, consumer(l))
	if err != nil {
		return nil, err
	}
	out := &outPin{name: l.Name, line: line, log: p.cfg.Logger}
	switch k := l.Kind.(type) {
	case *config.Trigger:
		return &triggerPin{outPin: out, rate: k.Rate.V, width: k.Width.V, flashes: p.flashes}, nil
	case *config.Strobe:
		return newStrobePin(out, l, k.Width.V, p.flashes), nil
	case *config.Reset:
		return &resetPin{outPin: out, config: *k}, nil
	}
	return &ledPin{outPin: out, state: p.mood}, nil
}

// input opens an input line, whose edges are matched with frames.
func (p *Lines) input(l *config.Line, pps bool, m capture.MatcherConfig) (pin, error) {
	line, err := p.cfg.Board.Input(l.Pin, consumer(l))
	if err != nil {
		return nil, err
	}
	return &edgePin{line: line, matcher: capture.NewMatcher(m), pps: pps}, nil
}

// consumer returns the kernel's name for the user of a line.
func consumer(l *config.Line) string { return "tegracast-" + l.Name }

// publish updates the list of pins that use each source's frames.
func (p *Lines) publish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string][]watcher{}
	for _, x := range p.list {
		if w, ok := x.pin.(watcher); ok && x.source != "" {
			all[x.source] = append(all[x.source], w)
		}
	}
	p.watch.Store(&all)
}

// Seen passes a source's frame to the lines that use it. It does not allocate.
func (p *Lines) Seen(source string, f *pipeline.Frame) {
	if all := p.watch.Load(); all != nil {
		for _, w := range (*all)[source] {
			w.frame(f)
		}
	}
}

// Start starts the lines that do not run yet. They run until ctx ends.
func (p *Lines) Start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.list {
		if x.done == nil {
			var own context.Context
			own, x.cancel = context.WithCancel(ctx)
			x.done = make(chan struct{})
			go func() {
				defer close(x.done)
				x.pin.run(own)
			}()
		}
	}
}

// Close stops and closes the lines in names, and restores their previous state. With nil it closes all.
func (p *Lines) Close(names map[string]bool) error {
	var gone []*openPin
	p.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(p.list)) {
		if names == nil || names[name] {
			gone = append(gone, p.list[name])
			delete(p.list, name)
		}
	}
	p.mu.Unlock()
	p.publish()
	var errs []error
	for _, x := range gone {
		if x.done != nil {
			x.cancel()
			<-x.done // ends: cancel has ended its context
		}
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}

// Books returns the counters of the open lines, by name.
func (p *Lines) Books() map[string]Books {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := map[string]Books{}
	for name, x := range p.list {
		b := x.books()
		b.Where = x.where
		list[name] = b
	}
	return list
}

// Reset pulses the reset line of the FPGA behind a device file. It returns false if there is no such line.
func (p *Lines) Reset(ctx context.Context, device string) (bool, error) {
	p.mu.Lock()
	x := p.list[config.ResetLine]
	p.mu.Unlock()
	if x == nil {
		return false, nil
	}
	r := x.pin.(*resetPin)
	if r.config.Device != device {
		return false, nil
	}
	return true, r.pulse(ctx)
}

// mood returns the combined state of all cameras and of the pipeline.
func (p *Lines) mood() mood {
	started, stalled := p.cfg.Health()
	if stalled != nil {
		return moodBlink
	}
	for _, state := range p.cfg.Cameras() {
		switch state {
		case capture.Restarting, capture.Reopening, capture.Resetting:
			return moodBlink
		case capture.Starting, capture.Ended:
			started = false
		}
	}
	if started {
		return moodOn
	}
	return moodOff
}
