// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// GraphConfig configures a Graph.
type GraphConfig struct {
	Allocator Allocator    // allocates the slots of the stages' output pools
	Recorder  *Recorder    // may be nil
	Member    Member       // of the graph's source; nil: it belongs to no group
	Logger    *slog.Logger // nil: slog.Default()
	// Grace is the time that consumers have to finish the waiting frames after the sources have ended; then they are
	// cancelled. Zero means one second.
	Grace time.Duration
}

// A Graph carries frames from sources through stages to outputs.
type Graph struct {
	cfg GraphConfig

	mu      sync.Mutex // guards construction, attach and detach; never taken on the path of a frame
	listed  sync.Mutex // held in addition to mu to change sources, stages or outputs; Stats locks only this one
	sources []*sourceNode
	stages  []*stageNode
	outputs []*Output
	names   map[string]bool
	hard    context.Context         // ends when consumers must stop; nil before Run
	abort   context.CancelCauseFunc // stops the sources; nil before Run
	started chan struct{}           // closed when Run has started every stage and output
	closed  bool
	wg      sync.WaitGroup
}

// Errors that callers of a Graph can distinguish.
var (
	ErrNegotiation = errors.New("no point of the graph has this format")
	ErrName        = errors.New("name is taken or unknown")
	ErrMemory      = errors.New("unsuitable memory")
	ErrClosed      = errors.New("graph is closed")
)

// NewGraph returns an empty graph.
func NewGraph(cfg GraphConfig) *Graph {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Grace == 0 {
		cfg.Grace = time.Second
	}
	return &Graph{cfg: cfg, names: map[string]bool{}, started: make(chan struct{})}
}

// A point is a place in the graph where frames of one format come out.
type point struct {
	node      string
	format    Format
	pool      *Pool  // the stage's output slots; nil for a source, which has its own
	depth     int    // frames that the attached consumers may hold in total, and those of points whose memory this is
	memory    *point // the point in whose memory the frames are (StageNeeds.Passes); nil: their own
	waits     bool   // frames wait until there is room (SourceStatus.Waits)
	consumers atomic.Pointer[[]*consumer]

	// handing is held while a frame is handed to the consumers, and while a consumer is removed, so that the consumer's
	// counts are final afterwards. No goroutine blocks while it holds the lock.
	handing sync.Mutex
	closed  bool // no more frames will come; guarded by handing
}

func newPoint(node string, f Format) *point {
	p := &point{node: node, format: f}
	p.consumers.Store(&[]*consumer{})
	return p
}

// A consumer is an output or a stage as seen from the point that feeds it.
type consumer struct {
	queue   *Queue
	account *Account
	rate    limiter
	useSlot func(index int, s Slot) error // nil if the consumer need not know the slots
	holds   int                           // frames that it may hold at a time: those in its queue and those in use
	stage   *stageNode                    // the stage that this consumer feeds; nil for an output
	take    bool                          // it takes the frame being handed out; set by decide, for hand
	why     DropReason                    // reason for not taking the frame; set and used like take
}

// rests reports whether nothing should be made for the consumer, that is, whether it is a failed output, or a stage all
// of whose outputs have failed.
func (c *consumer) rests() bool {
	return c.queue.resting.Load() || c.stage != nil && c.stage.rests()
}

func (p *point) add(c *consumer) {
	p.handing.Lock()
	defer p.handing.Unlock()
	if p.closed {
		c.queue.close()
	}
	list := append([]*consumer{}, *p.consumers.Load()...)
	list = append(list, c)
	p.consumers.Store(&list)
	p.depth += c.holds
	p.memory.reserve(c.holds)
}

// remove detaches c and drops the frames in its queue. Afterwards no frame is offered to it.
func (p *point) remove(c *consumer) {
	p.handing.Lock()
	defer p.handing.Unlock()
	defer c.queue.drain()
	var list []*consumer
	for _, x := range *p.consumers.Load() {
		if x != c {
			list = append(list, x)
		}
	}
	p.consumers.Store(&list)
	p.depth -= c.holds
	p.memory.reserve(-c.holds)
}

// reserve adds to the number of frames that consumers may hold, also at the point in whose memory they are.
func (p *point) reserve(holds int) {
	if p == nil {
		return
	}
	p.handing.Lock()
	p.depth += holds
	p.handing.Unlock()
	p.memory.reserve(holds)
}

// awaitRoom waits until every consumer has room for a frame or ctx ends, if frames wait at this point. The caller must
// hold no lock.
func (p *point) awaitRoom(ctx context.Context) {
	if !p.waits {
		return
	}
	for _, c := range *p.consumers.Load() {
		c.queue.awaitRoom(ctx)
	}
}

// decide determines for every consumer whether it takes the frame: it must not rest, and by its rate a frame must be
// due. It reports whether any consumer takes it.
func decide(list []*consumer, f *Frame) (wanted bool) {
	for _, c := range list {
		if c.rests() {
			c.take, c.why = false, DropDetached
			continue
		}
		c.take, c.why = c.rate.due(f), DropRate
		wanted = wanted || c.take
	}
	return wanted
}

// hand passes the frame out to the consumers that take it, and counts in as dropped for the others. If out is nil,
// because it could not be made, in counts as dropped for all; why is then the reason for those that take it.
func hand(list []*consumer, in, out *Frame, why DropReason) {
	for _, c := range list {
		switch {
		case !c.take:
			c.account.refuse(in, c.why)
		case out == nil:
			c.account.refuse(in, why)
		default:
			out.Retain()
			c.queue.put(out)
		}
	}
}

// close ends the flow through the point, also for consumers added later.
func (p *point) close() {
	p.handing.Lock()
	defer p.handing.Unlock()
	p.closed = true
	for _, c := range *p.consumers.Load() {
		c.queue.close()
	}
}

func (g *Graph) claim(name string) error {
	switch {
	case g.closed:
		return ErrClosed
	case name == "":
		return fmt.Errorf("%w: a part of the graph needs a name", ErrName)
	case g.names[name]:
		return fmt.Errorf("%w: %q is used twice in the graph", ErrName, name)
	}
	g.names[name] = true
	return nil
}

// AddSource adds a source under a unique name. All sources must be added before Run.
func (g *Graph) AddSource(name string, s Source) error {
	if err := s.Format().Validate(); err != nil {
		return fmt.Errorf("source %s: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.claim(name); err != nil {
		return err
	}
	node := &sourceNode{graph: g, name: name, source: s, out: newPoint(name, s.Format())}
	node.out.waits = s.Status().Waits
	g.list(func() { g.sources = append(g.sources, node) })
	return nil
}

// list holds listed while change changes one of the lists of the graph's parts.
func (g *Graph) list(change func()) {
	g.listed.Lock()
	defer g.listed.Unlock()
	change()
}

func (g *Graph) source(name string) *sourceNode {
	for _, s := range g.sources {
		if s.name == name {
			return s
		}
	}
	return nil
}

// readable returns an error if the reader uses the CPU but only the device may read the frames' memory.
func readable(f Format, reader, from string, onDevice bool) error {
	if f.Memory == MemoryHost || onDevice {
		return nil
	}
	return fmt.Errorf("%w: %s reads frames with the CPU, but %s keeps them in %s memory: give %s ordinary host memory, or process its frames on the device",
		ErrMemory, reader, from, f.Memory, from)
}

// Started returns a channel that is closed when Run has started every stage and output, so that none misses the first
// frame.
func (g *Graph) Started() <-chan struct{} { return g.started }

// Run runs sources, stages and outputs until ctx ends, a source fails, or every source has ended. It then lets the
// waiting frames drain for at most GraphConfig.Grace, and returns the sources' errors. A failed output is reopened
// (OutputConfig.Reopen), or ends without affecting the others. An error of a stage or output that means a lost device
// (DeviceLost) ends the whole graph, and Run returns it. A second Run returns ErrClosed, as does one after Close.
func (g *Graph) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	g.mu.Lock()
	if g.closed || g.hard != nil {
		g.mu.Unlock()
		return ErrClosed
	}
	g.hard = hard
	soft, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g.abort = stop
	for _, n := range g.stages {
		g.wg.Go(func() { n.run(hard) })
	}
	for _, o := range g.outputs {
		o.start(hard)
	}
	sources := g.sources
	close(g.started)
	g.mu.Unlock()

	errs := make([]error, len(sources))
	var wg sync.WaitGroup
	for i, s := range sources {
		wg.Go(func() {
			if errs[i] = s.run(soft); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(soft); DeviceLost(cause) && !DeviceLost(errors.Join(errs...)) {
		errs = append(errs, cause)
	}

	timer := time.AfterFunc(g.cfg.Grace, cancel)
	defer timer.Stop()
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
	return errors.Join(errs...)
}

// check ends the graph if an error of one of its parts means that a device is lost.
func (g *Graph) check(part string, err error) {
	if DeviceLost(err) {
		g.abort(fmt.Errorf("%s: %w", part, err))
	}
}

// Close frees the output pools. It must be called after Run has returned, or instead of Run. It returns an error that
// wraps ErrLeaked if a frame was never released.
func (g *Graph) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	var errs []error
	for _, n := range g.stages {
		for _, p := range append(n.retiredPorts, n.ports()...) {
			errs = append(errs, p.pool.Close())
		}
	}
	return errors.Join(errs...)
}
