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
	// From names the source or stage to read from. If it is empty, the graph uses the first one that has or can make
	// Format.
	From string
	// Format is the wanted format. A zero Pixel means the format that the sink needs, or that of From if the sink takes
	// any. The graph sets Rate.
	Format Format
	Rate   Rate   // maximum number of frames per second; zero means all
	Depth  int    // frames that may wait; zero means 2
	Policy Policy // which frame is dropped when the output cannot keep up
	// Reopen returns a sink with the same needs to replace one whose Run has failed. It is called again and again, with
	// growing pauses, until it succeeds or ctx ends. If it is nil, a failed output ends.
	Reopen func(ctx context.Context) (Sink, error)
	// Books are the counts of a detached output of the same name, which this output continues. If nil, counting starts
	// at zero.
	Books *Books
}

// Books holds all counts of an output, to be continued by its replacement.
type Books struct {
	account *Account
	lost    map[string]uint64 // frames lost in earlier stages, keyed as in OutputStats.Dropped
}

// An Output is a sink that is attached to a graph.
type Output struct {
	cfg      OutputConfig
	graph    *Graph
	point    *point
	stage    *stageNode // nil if the output reads from a source
	consumer *consumer
	lost     map[string]uint64 // Books.lost
	base     []Counts          // the counts of the stages before it, nearest first, at the time it was attached

	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
	faults atomic.Uint64
	again  chan struct{} // triggers an immediate reopening of a failed output

	mu    sync.Mutex // guards the fields below
	state OutputState
	err   error     // why the output is not running, or the error with which it ended
	since time.Time // start of the current retries
	next  time.Time // time of the next attempt to reopen
}

// Attach adds an output, before Run or while the graph is running. If no part of the graph can deliver the format, the
// error wraps ErrNegotiation and contains the reason of each part. Attach also fails, for instance, if the name is
// taken, or if there are too few slots.
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

// connect finds a point with the wanted format and joins it.
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

// join attaches the output to p, which is a point of stage, or of a source if stage is nil.
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
	// Attach between two frames of the stage, so that the counts of the stage and the output start at the same frame.
	stage.mu.Lock()
	defer stage.mu.Unlock()
	p.add(o.consumer)
	for n := stage; n != nil; n = n.up {
		o.base = append(o.base, n.consumer.account.Counts())
	}
	return nil
}

// tap attaches a consumer to the point of a source. It returns an error if the number of the source's slots is limited
// and does not suffice for all frames that its consumers may hold and two more to fill.
func (g *Graph) tap(p *point, c *consumer) error {
	err := g.checkSlots(p, c.holds)
	if err == nil {
		p.add(c)
	}
	return err
}

// checkSlots returns an error if the source of p has too few slots for further consumers; see tap.
func (g *Graph) checkSlots(p *point, holds int) error {
	have := g.source(p.node).source.Status().Slots
	if need := p.depth + holds + 2; have > 0 && have < need {
		return fmt.Errorf("source %s has %d slots, and its consumers could hold so many that it needs %d: give it more slots or them shorter queues",
			p.node, have, need)
	}
	return nil
}

// negotiate returns the point that has the wanted format; at a stage that can make the format, it creates the point.
// The returned stage is nil if the point belongs to a source. needed is the sink's format.
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

// takes reports whether a sink accepts frames of the format have; needed is the Format of its SinkNeeds. The rates may
// differ.
func takes(needed, have Format) bool {
	needed.Rate = have.Rate
	return needed.Pixel == 0 || needed == have
}

// completed returns want with the rate of have, or have itself if want has neither Pixel nor Width.
func completed(want, have Format) Format {
	if want.Pixel == 0 && want.Width == 0 {
		return have
	}
	want.Rate = have.Rate
	return want
}

// abnormal returns err without ErrDetached, which is a sink's normal end and may be joined with other errors.
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

// Detach removes the output from the graph. Waiting frames are dropped and counted, and the sink finishes its current
// frame. If ctx ends first, the sink is cancelled. Detach returns the output's final statistics.
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

// Books returns the output's counts for its replacement. The output must be detached.
func (o *Output) Books() *Books {
	b := &Books{account: o.consumer.account, lost: map[string]uint64{}}
	for at, n := range o.Stats().Dropped {
		if !strings.HasPrefix(at, o.cfg.Name+"/") {
			b.lost[at] = n
		}
	}
	return b
}

// leave removes the output from its point and from the graph. It reports whether the sink had been started.
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
