// SPDX-License-Identifier: Apache-2.0

// Package appliance opens what a configuration describes, runs it, and changes it when the configuration changes. It tells people,
// the log, the service manager and a metrics server how it goes.
//
// How each kind of source, stage and output is opened is in a file of its own; kinds.go lists them.
package appliance

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/egress"
	"github.com/tegracast/tegracast/cmd/tegracast/ending"
	"github.com/tegracast/tegracast/cmd/tegracast/fanout"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
	"github.com/tegracast/tegracast/pipeline/preview"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/web"
)

// Env is what an appliance works in.
type Env struct {
	Version string    // of the program
	Out     io.Writer // for people: how to watch, the status line, the books
	Log     *slog.Logger
	Board   lines.Board            // nil: the machine's own lines
	Metrics []prometheus.Collector // of the program
	Events  *web.Events            // what Log has got, for the page; nil: it is not told
	Bus     *telemetry.Bus         // what Log's faults are told to; nil: nobody tells them
	// Processors is how many compute and send; 0: as many as run Go (runtime.GOMAXPROCS).
	Processors int
	interrupt  <-chan struct{} // of Serve: kernels are not compiled to their end
	patient    bool            // outputs that cannot be opened at the start may wait
}

// Appliance is what a configuration describes, opened: a flow for each source, and the cards that they share.
type Appliance struct {
	env        Env
	recorder   *pipeline.Recorder
	memory     cudahost.Allocator
	cards      map[string]*capture.Card // by config.Card.Name
	models     map[string]*modelCard    // by the same
	devices    map[string]func() error  // closes the card of that name
	lines      *lines.Lines
	threads    *send.Threads  // of the RTP streams
	storage    *cufile.Driver // nil: nothing is recorded
	recordings record.Recordings
	disks      record.Disks // that hang
	fanout     fanout.Outputs
	shares     fanout.Shares
	egress     *egress.Streams
	text       []byte // of the configuration

	quarantine *kernel.Quarantine
	order      *kernel.Order

	health    func() (ready bool, stalled error) // nil: nobody watches
	ending    *ending.End                        // nil: nobody watches the end
	describes func() error                       // writes the SDP files; nil: nobody does

	changing sync.RWMutex // held while a reload closes and opens
	views    preview.Views

	books map[string]*pipeline.Books // of the outputs that a reload has closed, by name

	asked chan func(context.Context) error // what is to be done between two reloads; an error means that the appliance cannot go on

	mu    sync.Mutex            // guards cards, flows, their sources and outputs, names, off and waiting, against those who read the books
	flows []*flow               // in the order of the sources
	names []string              // of the outputs, in the order of the configuration
	off   map[string]web.Output // those that a client has stopped, by name

	waiting map[string]*waiting // outputs that could not be opened yet, by name
}

// flightEvents is how many frame events the flight recorder keeps: over half a minute at 30 frames a second and two
// outputs.
const flightEvents = 4096

func newAppliance(e Env) *Appliance {
	if e.Bus == nil {
		e.Bus = telemetry.New()
	}
	e.Processors = cmp.Or(e.Processors, runtime.GOMAXPROCS(0))
	a := &Appliance{
		env: e, recorder: pipeline.NewRecorder(flightEvents),
		quarantine: kernel.NewQuarantine(quarantineFolder()), order: kernel.NewOrder(),
		cards: map[string]*capture.Card{}, models: map[string]*modelCard{}, devices: map[string]func() error{},
		books: map[string]*pipeline.Books{}, off: map[string]web.Output{}, waiting: map[string]*waiting{}, threads: send.NewThreads(e.Processors), egress: egress.New(e.Log),
		asked: make(chan func(context.Context) error),
	}
	a.lines = lines.New(lines.Config{Board: e.Board, Cameras: a.cameras, Health: a.state, Record: a.recordings.Edge, Logger: e.Log})
	return a
}

// state is whether all has started, and what stalls.
func (a *Appliance) state() (ready bool, stalled error) {
	if a.health == nil {
		return true, nil
	}
	return a.health()
}

// slotMemory makes the graph's slots of shared memory.
type slotMemory struct {
	memory cudahost.Allocator
	flags  cudahost.Flags
}

// AllocSlot implements pipeline.Allocator.
func (s slotMemory) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	b, err := s.memory.AllocHost(f.Size(), s.flags)
	if err != nil {
		return pipeline.Slot{}, err
	}
	file, offset := b.File()
	return pipeline.Slot{Bytes: b.Bytes(), Device: b.DevicePointer(), File: file, Offset: offset, Close: b.Close}, nil
}

// flow returns the flow of a source, or nil.
func (a *Appliance) flow(source string) *flow {
	if i := slices.IndexFunc(a.flows, func(f *flow) bool { return f.name == source }); i >= 0 {
		return a.flows[i]
	}
	return nil
}

// output returns an output by its name, and its flow; nil when there is none.
func (a *Appliance) output(name string) (*flow, *output) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flows {
		if i := slices.IndexFunc(f.outputs, func(o *output) bool { return o.name == name }); i >= 0 {
			return f, f.outputs[i]
		}
	}
	return nil, nil
}

// ask has something done between two reloads, and returns its result. fatal means that the appliance cannot go on.
func (a *Appliance) ask(ctx context.Context, do func(context.Context) (result, fatal error)) error {
	answer := make(chan error, 1)
	select {
	case a.asked <- func(ctx context.Context) error {
		result, fatal := do(ctx)
		answer <- result
		return fatal
	}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done(): // the page is closed
		return ctx.Err()
	}
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
	for name, w := range a.waiting {
		all.Outputs = append(all.Outputs, pipeline.OutputStats{Name: name, From: w.from, OutputStatus: w.about.OutputStatus})
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

// cameras are the sources that say what they are doing.
func (a *Appliance) cameras() []lines.Camera {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []lines.Camera
	for _, f := range a.flows {
		if c, ok := f.source.(lines.Camera); ok {
			list = append(list, c)
		}
	}
	return list
}
