package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tegracast/capture"
	"tegracast/cudahost"
	"tegracast/fpga/xdma"
	"tegracast/pipeline"
	"tegracast/pipeline/isp"
	"tegracast/pipeline/rtp"
)

// appliance is what a configuration describes, opened.
type appliance struct {
	env         env
	graph       *pipeline.Graph
	recorder    *pipeline.Recorder
	sources     map[string]pipeline.Source
	cards       map[string]*capture.Card // by SourceConfig.card
	models      map[string]*modelDevice  // by the same
	streams     []*stream
	controllers []*controller
	sinks       []func() error // of the outputs that pin memory; closed first
	closers     []func() error // in the order of opening
}

// stream is one RTP output.
type stream struct {
	name   string
	config *RTPConfig
	sink   *rtp.Sink
}

// flightEvents is how many frame events the flight recorder keeps: over half a minute at 30 frames a second and two
// outputs.
const flightEvents = 4096

// build opens everything; nothing runs yet. On an error it has closed what it had opened.
func build(e env, d *document) (*appliance, error) {
	a := &appliance{
		env: e, recorder: pipeline.NewRecorder(flightEvents), sources: map[string]pipeline.Source{},
		cards: map[string]*capture.Card{}, models: map[string]*modelDevice{},
	}
	if err := a.open(d); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *appliance) open(d *document) error {
	memory, err := cudahost.Open(cudahost.Config{Backend: d.Memory, Logger: a.env.log})
	if err != nil {
		return usageError{d.errorAt("$.memory", "%v", err)}
	}
	a.closers = append(a.closers, memory.Close)
	pool := slots{memory}
	a.graph = pipeline.NewGraph(pipeline.GraphConfig{Allocator: pool, Recorder: a.recorder, Logger: a.env.log})
	for i := range d.Sources {
		if err := a.addSource(d, i, memory.Backend(), pool); err != nil {
			return err
		}
	}
	for i := range d.ISP {
		if err := a.addISP(&d.ISP[i], d.isps[i]); err != nil {
			return err
		}
	}
	for i := range d.Outputs {
		if err := a.addOutput(d, i); err != nil {
			return err
		}
	}
	return nil
}

func (a *appliance) addISP(c *ISPConfig, cfg isp.Config) error {
	control, err := a.addController(c, &cfg)
	if err != nil {
		return err
	}
	stage, err := isp.New(cfg)
	if err != nil {
		return err
	}
	if control != nil {
		control.stage = stage
	}
	a.closers = append(a.closers, stage.Close)
	return a.graph.AddStage(c.Name, stage, c.From, stageQueue)
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
	in := a.origin(d, c).Format()
	want, own, err := c.formats(in)
	if err != nil {
		return usageError{d.errorAt(path+".rtp.payload", "%s", plain(err, rtp.ErrFormat))}
	}
	if d.packetReady(c) {
		if ready, ok := c.RTP.config(c.Name).PacketReady(want); ok {
			want, ready.Rate = ready, own.Rate
			own = ready
		}
	}
	var sink pipeline.Sink
	if c.FPGA != nil {
		sink, err = a.fpgaSink(c, d.source(c.FPGA.Card).card(), own)
	} else {
		sink, err = a.rtpSink(c, own)
	}
	if errors.Is(err, rtp.ErrConfig) || errors.Is(err, rtp.ErrFormat) {
		return usageError{d.errorAt(path+".rtp", "%v", err)}
	} else if errors.Is(err, xdma.ErrChannel) {
		return usageError{d.errorAt(path+".fpga.channel", "%v", err)}
	} else if err != nil {
		return fmt.Errorf("output %s: %w", c.Name, err)
	}
	_, err = a.graph.Attach(pipeline.OutputConfig{
		Name: c.Name, Sink: sink, From: c.From, Format: want, Rate: c.Rate.V, Depth: c.Queue, Policy: c.Policy.V,
	})
	if err != nil {
		return usageError{d.errorAt(path, "%v", strings.ReplaceAll(err.Error(), "\n", "; "))}
	}
	return nil
}

// rtpSink opens an RTP stream.
func (a *appliance) rtpSink(c *OutputConfig, own pipeline.Format) (pipeline.Sink, error) {
	cfg := c.RTP.config(c.Name)
	cfg.Logger = a.env.log.With("output", c.Name)
	sink, err := rtp.NewSink(cfg, own)
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, sink.Close)
	a.streams = append(a.streams, &stream{c.Name, c.RTP, sink})
	return sink, nil
}

// fpgaSink takes an H2C channel of a card.
func (a *appliance) fpgaSink(c *OutputConfig, card string, own pipeline.Format) (pipeline.Sink, error) {
	sink, err := capture.NewFPGAOutput(context.Background(), capture.FPGAOutputConfig{
		Card: a.cards[card], Channel: c.FPGA.Channel, Format: own, Name: c.Name, Logger: a.env.log,
	})
	if err != nil {
		return nil, err
	}
	a.sinks = append(a.sinks, sink.Close)
	return sink, nil
}

// origin is the source that feeds an output; the check of the configuration has settled From.
func (a *appliance) origin(d *document, c *OutputConfig) pipeline.Source {
	if stage := d.isp(c.From); stage != nil {
		return a.sources[stage.From]
	}
	return a.sources[c.From]
}

// Close gives back what was opened, last first. The graph must not run.
func (a *appliance) Close() error {
	var errs []error
	for _, s := range a.sinks { // they have pinned the graph's slots
		errs = append(errs, s())
	}
	if a.graph != nil {
		errs = append(errs, a.graph.Close())
	}
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i]())
	}
	a.closers = nil
	return errors.Join(errs...)
}
