package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// appliance is what a configuration describes, opened: a flow for each source, and the cards that they share.
type appliance struct {
	env      env
	recorder *pipeline.Recorder
	memory   cudahost.Allocator
	cards    map[string]*capture.Card // by SourceConfig.card
	models   map[string]*modelDevice  // by the same
	devices  map[string]func() error  // closes the card of that name
	pins     *pins

	quarantine *kernel.Quarantine
	order      *kernel.Order

	mu    sync.Mutex // guards cards, flows, and their sources and outputs, against those who read the books
	flows []*flow    // in the order of the sources
}

// stream is one RTP output.
type stream struct {
	name   string
	config *RTPConfig
	sink   *send.Sink
}

// output is one of a flow's.
type output struct {
	name     string
	attached *pipeline.Output
	stream   *stream      // nil: no RTP
	free     func() error // gives back what another sink has opened or pinned; nil: nothing
}

// flightEvents is how many frame events the flight recorder keeps: over half a minute at 30 frames a second and two
// outputs.
const flightEvents = 4096

// build opens everything; nothing runs yet. On an error it has closed what it had opened.
func build(e env, d *document) (*appliance, error) {
	a := &appliance{
		env: e, recorder: pipeline.NewRecorder(flightEvents),
		quarantine: kernel.NewQuarantine(quarantineFolder()), order: kernel.NewOrder(),
		cards: map[string]*capture.Card{}, models: map[string]*modelDevice{}, devices: map[string]func() error{},
	}
	a.pins = newPins(e, a.supervised)
	if err := a.open(d, everything(d)); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// open opens those flows and outputs of a configuration that p names.
func (a *appliance) open(d *document, p plan) error {
	if a.memory == nil {
		memory, err := cudahost.Open(cudahost.Config{Backend: d.Memory, Logger: a.env.log})
		if err != nil {
			return usageError{d.errorAt("$.memory", "%v", err)}
		}
		a.memory = memory
	}
	if err := a.pins.open(d, p.pins); err != nil { // the FPGA may need its reset
		return err
	}
	for i := range d.Sources {
		if p.flows[d.Sources[i].Name] {
			if err := a.addFlow(d, i); err != nil {
				return err
			}
		}
	}
	for i := range d.Outputs {
		if p.outputs[d.Outputs[i].Name] {
			if err := a.addOutput(d, i); err != nil {
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

func (a *appliance) addOutput(d *document, i int) error {
	c := &d.Outputs[i]
	path := fmt.Sprintf("$.outputs[%d]", i)
	f := a.flow(d.origin(c))
	in := f.source.Format()
	want, own, err := c.formats(in)
	if err != nil {
		return usageError{d.errorAt(path+".rtp.payload", "%s", plain(err, rtp.ErrFormat))}
	}
	if c.tellsResults() && d.isp(c.From) == nil && !d.kernel(c.From).findsResults() {
		want, own = pipeline.Format{}, in // frames as they are
	}
	if d.packetReady(c) {
		if ready, ok := c.RTP.config(c.Name).PacketReady(want); ok {
			want, ready.Rate = ready, own.Rate
			own = ready
		}
	}
	o := &output{name: c.Name}
	var sink pipeline.Sink
	switch {
	case c.FPGA != nil:
		sink, err = a.fpgaSink(o, c, d.source(c.FPGA.Card).card(), own)
	case c.Results != nil:
		sink, err = a.resultsSink(o, c)
	default:
		sink, err = a.rtpSink(o, c, f.timestamp, own)
	}
	if errors.Is(err, rtp.ErrConfig) || errors.Is(err, rtp.ErrFormat) {
		return usageError{d.errorAt(path+".rtp", "%v", err)}
	} else if errors.Is(err, xdma.ErrChannel) {
		return usageError{d.errorAt(path+".fpga.channel", "%v", err)}
	} else if err != nil {
		return fmt.Errorf("output %s: %w", c.Name, err)
	}
	o.attached, err = f.graph.Attach(pipeline.OutputConfig{
		Name: c.Name, Sink: sink, From: c.From, Format: want, Rate: c.Rate.V, Depth: c.Queue, Policy: c.Policy.V,
	})
	if err != nil {
		return errors.Join(usageError{d.errorAt(path, "%v", strings.ReplaceAll(err.Error(), "\n", "; "))}, o.close())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f.outputs = append(f.outputs, o)
	return nil
}

// rtpSink opens an RTP stream.
func (a *appliance) rtpSink(o *output, c *OutputConfig, timestamp uint32, own pipeline.Format) (pipeline.Sink, error) {
	cfg := c.RTP.config(c.Name)
	cfg.Start = rtp.NewStart(timestamp)
	cfg.Logger = a.env.log.With("output", c.Name)
	if cfg.Payload == rtp.JPEG {
		encoder, err := newJPEG(a.env, c.Name, cmp.Or(cfg.Quality, rtp.DefaultQuality), a.memory)
		if err != nil {
			return nil, err
		}
		if encoder != nil {
			cfg.Encoder, o.free = encoder, encoder.Close
		}
	}
	sink, err := send.New(cfg, own)
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.stream = &stream{c.Name, c.RTP, sink}
	return sink, nil
}

// fpgaSink takes an H2C channel of a card.
func (a *appliance) fpgaSink(o *output, c *OutputConfig, card string, own pipeline.Format) (pipeline.Sink, error) {
	sink, err := capture.NewFPGAOutput(context.Background(), capture.FPGAOutputConfig{
		Card: a.cards[card], Channel: c.FPGA.Channel, Format: own, Name: c.Name, Logger: a.env.log,
	})
	if err != nil {
		return nil, err
	}
	o.free = sink.Close
	return sink, nil
}

// close gives back what the output holds besides frames. It does not run any more.
func (o *output) close() error {
	var errs []error
	if o.stream != nil {
		errs = append(errs, o.stream.sink.Close())
	}
	if o.free != nil {
		errs = append(errs, o.free())
	}
	return errors.Join(errs...)
}

// flow returns the flow of a source, or nil.
func (a *appliance) flow(source string) *flow {
	if i := slices.IndexFunc(a.flows, func(f *flow) bool { return f.name == source }); i >= 0 {
		return a.flows[i]
	}
	return nil
}

// origin names the source that feeds an output; the check of the configuration has settled From.
func (d *document) origin(c *OutputConfig) string {
	return d.sourceOf(c.From)
}

// running are the streams of now.
func (a *appliance) running() []*stream {
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

// controllers are the loops of now.
func (a *appliance) controllers() []*controller {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*controller
	for _, f := range a.flows {
		list = append(list, f.controllers...)
	}
	return list
}

// stats are the books of all flows.
func (a *appliance) stats() pipeline.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all pipeline.Stats
	for _, f := range a.flows {
		st := f.graph.Stats()
		all.Sources, all.Stages, all.Outputs = append(all.Sources, st.Sources...), append(all.Stages, st.Stages...), append(all.Outputs, st.Outputs...)
	}
	return all
}

// Close gives back what was opened. Nothing may run.
func (a *appliance) Close() error {
	var errs []error
	for _, f := range slices.Backward(slices.Clone(a.flows)) {
		errs = append(errs, a.dropFlow(f))
	}
	return errors.Join(append(errs, a.dropCards(nil), a.pins.drop(nil), a.dropMemory())...)
}

// dropMemory closes the back end; all that was made of it has been closed.
func (a *appliance) dropMemory() error {
	if a.memory == nil {
		return nil
	}
	err := a.memory.Close()
	a.memory = nil
	return err
}
