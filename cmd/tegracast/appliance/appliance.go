// SPDX-License-Identifier: Apache-2.0

// Package appliance opens what a configuration describes, runs it, and changes it when the configuration changes. It tells people,
// the log, the service manager and a metrics server how it goes.
//
// How each kind of source, stage and output is opened is in a file of its own; kinds.go lists them.
package appliance

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// Env is what an appliance works in.
type Env struct {
	Out     io.Writer // for people: how to watch, the status line, the books
	Log     *slog.Logger
	Board   lines.Board            // nil: the machine's own lines
	Metrics []prometheus.Collector // of the program
}

// Appliance is what a configuration describes, opened: a flow for each source, and the cards that they share.
type Appliance struct {
	env      Env
	recorder *pipeline.Recorder
	memory   cudahost.Allocator
	cards    map[string]*capture.Card // by config.Card.Name
	models   map[string]*modelCard    // by the same
	devices  map[string]func() error  // closes the card of that name
	lines    *lines.Lines

	quarantine *kernel.Quarantine
	order      *kernel.Order

	health func() (ready bool, stalled error) // nil: nobody watches

	mu    sync.Mutex // guards cards, flows, and their sources and outputs, against those who read the books
	flows []*flow    // in the order of the sources
}

// flightEvents is how many frame events the flight recorder keeps: over half a minute at 30 frames a second and two
// outputs.
const flightEvents = 4096

// Open opens everything that a configuration describes; nothing runs yet. On an error it has closed what it had opened.
func Open(e Env, c *config.Appliance) (*Appliance, error) {
	a := newAppliance(e)
	if err := a.open(c, everything(c)); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func newAppliance(e Env) *Appliance {
	a := &Appliance{
		env: e, recorder: pipeline.NewRecorder(flightEvents),
		quarantine: kernel.NewQuarantine(quarantineFolder()), order: kernel.NewOrder(),
		cards: map[string]*capture.Card{}, models: map[string]*modelCard{}, devices: map[string]func() error{},
	}
	a.lines = lines.New(lines.Config{Board: e.Board, Cameras: a.cameras, Health: a.state, Logger: e.Log})
	return a
}

// state is whether all has started, and what stalls.
func (a *Appliance) state() (ready bool, stalled error) {
	if a.health == nil {
		return true, nil
	}
	return a.health()
}

// open opens those parts of a configuration that p names.
func (a *Appliance) open(c *config.Appliance, p plan) error {
	if a.memory == nil {
		memory, err := cudahost.Open(cudahost.Config{Backend: c.Memory, Logger: a.env.Log})
		if err != nil {
			return c.MemoryAt.Errorf("%w", err)
		}
		a.memory = memory
	}
	for i := range c.Lines { // the FPGA may need its reset
		if l := &c.Lines[i]; p.lines[l.Name] {
			if err := a.lines.Open(l); err != nil {
				return err
			}
		}
	}
	for i := range c.Sources {
		if s := &c.Sources[i]; p.flows[s.Name] {
			if err := a.addFlow(c, s); err != nil {
				return err
			}
		}
	}
	for i := range c.Outputs {
		if o := &c.Outputs[i]; p.outputs[o.Name] {
			if err := a.addOutput(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// slots makes the graph's slots of shared memory.
type slots struct{ memory cudahost.Allocator }

// AllocSlot implements pipeline.Allocator.
func (s slots) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	b, err := s.memory.AllocHost(f.Size(), cudahost.Mapped)
	if err != nil {
		return pipeline.Slot{}, err
	}
	return pipeline.Slot{Bytes: b.Bytes(), Device: b.DevicePointer(), Close: b.Close}, nil
}

// output is one of a flow's.
type output struct {
	name     string
	attached *pipeline.Output
	stream   *stream      // nil: no RTP
	free     func() error // gives back what the sink has opened or pinned; nil: nothing
}

func (a *Appliance) addOutput(c *config.Output) error {
	f := a.flow(c.Source)
	want, own, err := c.Formats(f.source.Format())
	if err != nil {
		return err
	}
	o := &output{name: c.Name}
	sink, err := a.openSink(f, o, c, own)
	if err != nil {
		return err
	}
	o.attached, err = f.graph.Attach(pipeline.OutputConfig{
		Name: c.Name, Sink: sink, From: c.From, Format: want, Rate: c.Rate, Depth: c.Depth, Policy: c.Policy,
	})
	if err != nil {
		return errors.Join(c.At.Errorf("%w", oneLine{err}), o.close())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f.outputs = append(f.outputs, o)
	return nil
}

// oneLine is an error whose text is one line.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

func (e oneLine) Unwrap() error { return e.error }

// close gives back what the output holds besides frames. It does not run any more.
func (o *output) close() error {
	if o.free == nil {
		return nil
	}
	return o.free()
}

// flow returns the flow of a source, or nil.
func (a *Appliance) flow(source string) *flow {
	if i := slices.IndexFunc(a.flows, func(f *flow) bool { return f.name == source }); i >= 0 {
		return a.flows[i]
	}
	return nil
}

// streams are the RTP streams that run.
func (a *Appliance) streams() []*stream {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*stream
	for _, f := range a.flows {
		for _, o := range f.outputs {
			if o.stream != nil {
				list = append(list, o.stream)
			}
		}
	}
	return list
}

// controllers are the loops that run.
func (a *Appliance) controllers() []*controller {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*controller
	for _, f := range a.flows {
		list = append(list, f.controllers...)
	}
	return list
}

// stats are the books of all flows.
func (a *Appliance) stats() pipeline.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all pipeline.Stats
	for _, f := range a.flows {
		st := f.graph.Stats()
		all.Sources, all.Stages, all.Outputs = append(all.Sources, st.Sources...), append(all.Stages, st.Stages...), append(all.Outputs, st.Outputs...)
	}
	return all
}

// started waits until every flow has armed its outputs. It returns false when ctx ends first.
func (a *Appliance) started(ctx context.Context) bool {
	a.mu.Lock()
	flows := slices.Clone(a.flows)
	a.mu.Unlock()
	for _, f := range flows {
		select {
		case <-f.graph.Started():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Close gives back what was opened. Nothing may run.
func (a *Appliance) Close() error {
	var errs []error
	for _, f := range slices.Backward(slices.Clone(a.flows)) {
		errs = append(errs, a.dropFlow(f))
	}
	return errors.Join(append(errs, a.dropCards(nil), a.lines.Close(nil), a.dropMemory())...)
}

// dropMemory closes the back end; all that was made of it has been closed.
func (a *Appliance) dropMemory() error {
	if a.memory == nil {
		return nil
	}
	err := a.memory.Close()
	a.memory = nil
	return err
}
