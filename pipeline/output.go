// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// OutputConfig describes an output.
type OutputConfig struct {
	Name string
	Sink Sink
	// From names the source or stage to tap; empty: the first one that has or can make Format.
	From string
	// Format is what the output wants. A zero Pixel: what the sink needs, or From as it is when the sink takes anything.
	// Rate is the graph's.
	Format Format
	Rate   Rate   // at most so many frames a second; zero: all
	Depth  int    // frames that may wait; zero: 2
	Policy Policy // which frame is lost when the output cannot keep up
	// Reopen makes a sink in the place of one whose Run has failed, with the same needs, until ctx ends. It is called again and again,
	// with growing pauses. Nil: an output that fails ends.
	Reopen func(ctx context.Context) (Sink, error)
	// Books are those of an output of the same name that was detached: this one goes on with them. Nil: they begin.
	Books *Books
}

// Books are all that an output has counted, for the one that takes its place.
type Books struct {
	account *Account
	lost    map[string]uint64 // by stages on the way, as in OutputStats.Dropped
}

// An Output is a sink that is attached to a graph.
type Output struct {
	cfg      OutputConfig
	graph    *Graph
	point    *point
	stage    *stageNode // nil when the output taps a source
	consumer *consumer
	lost     map[string]uint64 // Books.lost
	base     []Counts          // the books of the stages on the way, from the last to the first, when the output was attached

	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
	faults atomic.Uint64
	again  chan struct{} // has a failed output be opened again at once

	mu    sync.Mutex // guards the rest
	state OutputState
	err   error     // why it is not running; or with which it ended
	since time.Time // retrying
	next  time.Time // it is opened again
}

// Attach adds an output, before Run or while the graph runs. It returns an error that wraps ErrNegotiation and says
// what each part of the graph answered when nobody can make the format.
func (g *Graph) Attach(cfg OutputConfig) (*Output, error) {
	if cfg.Depth == 0 {
		cfg.Depth = 2
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.claim(cfg.Name); err != nil {
		return nil, err
	}
	o := &Output{cfg: cfg, graph: g, done: make(chan struct{}), again: make(chan struct{}, 1), state: Running}
	if err := o.connect(); err != nil {
		delete(g.names, cfg.Name)
		return nil, fmt.Errorf("output %s: %w", cfg.Name, err)
	}
	g.list(func() { g.outputs = append(g.outputs, o) })
	if g.hard != nil {
		o.start(g.hard)
	}
	return o, nil
}

// connect finds the point, and joins it.
func (o *Output) connect() error {
	needs := o.cfg.Sink.Needs()
	p, stage, err := o.graph.negotiate(o.cfg, needs.Format)
	if err != nil {
		return err
	}
	if err := o.join(p, stage, needs); err != nil {
		if stage != nil {
			stage.prune(p)
		}
		return err
	}
	return nil
}

// join takes the output's place at the point.
func (o *Output) join(p *point, stage *stageNode, needs SinkNeeds) error {
	if err := readable(p.format, o.cfg.Name, p.node, needs.OnDevice); err != nil {
		return err
	}
	if p.format.PacketPitch > 0 && len(*p.consumers.Load()) > 0 {
		return fmt.Errorf("%w: packet-ready frames of %s have one reader, which writes headers into them: use plain frames", ErrNegotiation, p.node)
	}
	account := NewAccount(o.cfg.Name, o.graph.cfg.Recorder)
	if b := o.cfg.Books; b != nil {
		account, o.lost = b.account, b.lost
	}
	o.point, o.stage = p, stage
	o.consumer = &consumer{
		queue: NewQueue(o.cfg.Depth, o.cfg.Policy, account), account: account,
		rate: newLimiter(p.format.Rate, o.cfg.Rate), holds: o.cfg.Depth + max(needs.Holds, 1), useSlot: needs.UseSlot,
	}
	o.consumer.queue.log = o.graph.cfg.Logger
	if stage == nil {
		if needs.UseSlot != nil {
			return fmt.Errorf("%w: it needs slots of its own, which %s does not give: take the frames from a stage", ErrMemory, p.node)
		}
		return o.graph.tap(p, o.consumer)
	}
	if err := stage.provision(p, o.consumer); err != nil {
		return err
	}
	// Between two frames of the stage, so that its books and the output's begin at the same frame.
	stage.mu.Lock()
	defer stage.mu.Unlock()
	p.add(o.consumer)
	for n := stage; n != nil; n = n.up {
		o.base = append(o.base, n.consumer.account.Counts())
	}
	return nil
}

// tap joins a consumer to a source, whose slots must suffice for all that its consumers may hold and two to fill.
func (g *Graph) tap(p *point, c *consumer) error {
	p.add(c)
	have := g.source(p.node).source.Status().Slots
	if need := p.depth + 2; have > 0 && have < need {
		p.remove(c)
		return fmt.Errorf("source %s has %d slots, and its consumers could hold so many that it needs %d: give it more slots or them shorter queues",
			p.node, have, need)
	}
	return nil
}

// negotiate finds the point that has the wanted format or the stage that can make it. needed is what the sink takes.
func (g *Graph) negotiate(cfg OutputConfig, needed Format) (*point, *stageNode, error) {
	if cfg.Format.Pixel == 0 {
		cfg.Format = needed
	}
	answers := []error{ErrNegotiation}
	known := cfg.From == ""
	for _, s := range g.sources {
		if cfg.From != "" && cfg.From != s.name {
			continue
		}
		known = true
		have := s.out.format
		want := completed(cfg.Format, have)
		if want == have && takes(needed, have) {
			return s.out, nil, nil
		}
		answers = append(answers, fmt.Errorf("source %s delivers %s", s.name, have))
	}
	for _, n := range g.stages {
		if cfg.From != "" && cfg.From != n.name {
			continue
		}
		known = true
		want := completed(cfg.Format, n.from.format)
		if want.Pixel == 0 || !takes(needed, want) {
			answers = append(answers, fmt.Errorf("the output itself does not accept %s", want))
			continue
		}
		p, err := n.port(want)
		if err == nil {
			return p, n, nil
		}
		answers = append(answers, err)
	}
	if !known {
		return nil, nil, fmt.Errorf("%w: it reads from %q, which is no source and no stage", ErrName, cfg.From)
	}
	return nil, nil, errors.Join(answers...)
}

// takes says whether a sink that needs a format takes have.
func takes(needed, have Format) bool {
	needed.Rate = have.Rate
	return needed.Pixel == 0 || needed == have
}

// completed fills in what the point decides.
func completed(want, have Format) Format {
	if want.Pixel == 0 && want.Width == 0 {
		return have
	}
	want.Rate = have.Rate
	return want
}

// abnormal is what a sink's error says besides ErrDetached, its normal end; it may be joined with others.
func abnormal(err error) error {
	if !errors.Is(err, ErrDetached) {
		return err
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var rest []error
	for _, e := range joined.Unwrap() {
		rest = append(rest, abnormal(e))
	}
	return errors.Join(rest...)
}

// Detach takes the output off the graph: frames that wait are dropped and counted, the sink finishes the one in
// hand. When ctx ends first the sink is cancelled. Detach returns the output's final books.
func (o *Output) Detach(ctx context.Context) OutputStats {
	o.once.Do(func() {
		running := o.leave()
		if running {
			select {
			case <-o.done:
			case <-ctx.Done():
				o.cancel()
				<-o.done // ends: the sink's context has ended
			}
		}
		if o.stage != nil {
			o.graph.mu.Lock()
			defer o.graph.mu.Unlock()
			o.stage.prune(o.point)
		}
	})
	return o.Stats()
}

// Books are the output's, for another one to go on with. It has been detached.
func (o *Output) Books() *Books {
	b := &Books{account: o.consumer.account, lost: map[string]uint64{}}
	for at, n := range o.Stats().Dropped {
		if !strings.HasPrefix(at, o.cfg.Name+"/") {
			b.lost[at] = n
		}
	}
	return b
}

// leave takes the output off its point and off the graph. It reports whether the sink was started.
func (o *Output) leave() (running bool) {
	g := o.graph
	g.mu.Lock()
	defer g.mu.Unlock()
	if o.stage != nil {
		o.stage.mu.Lock()
		defer o.stage.mu.Unlock()
	}
	o.point.remove(o.consumer)
	g.list(func() { g.outputs = slices.DeleteFunc(g.outputs, func(x *Output) bool { return x == o }) })
	delete(g.names, o.cfg.Name)
	return o.cancel != nil
}
