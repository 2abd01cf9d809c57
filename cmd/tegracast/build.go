package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"tegracast/capture"
	"tegracast/cudahost"
	"tegracast/fpga"
	"tegracast/fpga/model"
	"tegracast/fpga/xdma"
	"tegracast/pipeline"
	"tegracast/pipeline/isp"
	"tegracast/pipeline/rtp"
	"tegracast/tegra/tegrasim"
)

// appliance is what a configuration describes, opened.
type appliance struct {
	env      env
	graph    *pipeline.Graph
	recorder *pipeline.Recorder
	sources  map[string]pipeline.Source
	devices  map[string]*modelDevice // by the name of the source
	streams  []*stream
	sinks    []func() error // of the outputs that pin memory; closed first
	closers  []func() error // in the order of opening
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
	a := &appliance{env: e, recorder: pipeline.NewRecorder(flightEvents), sources: map[string]pipeline.Source{}, devices: map[string]*modelDevice{}}
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
	pool := slots{memory}
	a.graph = pipeline.NewGraph(pipeline.GraphConfig{Allocator: pool, Recorder: a.recorder, Logger: a.env.log})
	for i := range d.Sources {
		if err := a.addSource(d, i, memory.Backend(), pool); err != nil {
			return err
		}
	}
	for _, c := range d.ISP {
		stage, err := isp.New(c.config())
		if err != nil {
			return err
		}
		a.closers = append(a.closers, stage.Close)
		if err := a.graph.AddStage(c.Name, stage, c.From, stageQueue); err != nil {
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

func (a *appliance) addSource(d *document, i int, backend string, pool slots) error {
	c := &d.Sources[i]
	var source interface {
		pipeline.Source
		Close() error
	}
	var err error
	if c.Model != nil {
		source, err = a.modelCamera(c, backend)
	} else {
		source, err = replay(c, pool)
	}
	if err != nil {
		path := fmt.Sprintf("$.sources[%d]", i)
		if c.File != nil {
			path += ".file.path"
		} else if c.Model.Replay != "" {
			path += ".model.replay"
		}
		return usageError{d.errorAt(path, "%v", err)}
	}
	a.closers = append(a.closers, source.Close)
	a.sources[c.Name] = source
	return a.graph.AddSource(c.Name, source)
}

// replay opens a file source: YUV4MPEG2, or headerless Bayer frames.
func replay(c *SourceConfig, pool slots) (*capture.Replay, error) {
	cfg := capture.ReplayConfig{Path: c.File.Path, Rate: c.File.Rate.V, Loop: !c.File.Once, Slots: c.Slots, Allocator: pool}
	if f, known := c.format(); known {
		cfg.Format = f
	}
	return capture.NewReplay(cfg)
}

// modelCamera plugs in an FPGA model with a sensor and opens it as the real camera is opened.
func (a *appliance) modelCamera(c *SourceConfig, backend string) (*capture.FPGACamera, error) {
	sensor, err := modelSensor(c.Model)
	if err != nil {
		return nil, err
	}
	device, err := newModelDevice(a.env, backend, c.Model.Seed, func(sim *tegrasim.Sim) model.Config {
		cfg := model.Camera(sim, sensor)
		cfg.Faults = faultPlan(c.Model, sim)
		cfg.Sinks = map[int]model.SinkConfig{0: {}} // checks what an fpga output sends
		return cfg
	})
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, device.Close)
	a.devices[c.Name] = device
	return capture.NewFPGACamera(capture.FPGAConfig{
		Card: device.card, Name: c.Name, Recorder: a.recorder, Width: c.Model.Width, Height: c.Model.Height, Pixel: pipeline.RGGB10,
		Rate: c.Model.Rate.V, Exposure: c.Model.Exposure.V, Slots: c.Slots, Logger: a.env.log,
	})
}

// faultPlan is what the configuration wants to go wrong. A revocation, F11, hits one slot after the other.
func faultPlan(m *ModelConfig, sim *tegrasim.Sim) model.FaultPlan {
	var revoked atomic.Uint64
	plan := model.FaultPlan{Seed: m.Seed, Rates: map[model.FaultID]float64{}, Revoke: func() { sim.InvalidateAny(revoked.Add(1)) }}
	for name, rate := range m.Faults {
		if id, err := model.ParseFaultID(name); err == nil { // the configuration was checked
			plan.Rates[id] = rate
		}
	}
	return plan
}

// modelSensor makes the sensor that replays the test chart, cut to the wanted size, or a raw file.
func modelSensor(m *ModelConfig) (*model.Sensor, error) {
	cfg := model.TestChartSensor()
	if m.Replay != "" {
		b, err := os.ReadFile(m.Replay)
		if err != nil {
			return nil, err
		}
		size := 2 * m.Width * m.Height
		if len(b) == 0 || len(b)%size != 0 {
			return nil, fmt.Errorf("%s has %d bytes, no multiple of the %d of one frame of %dx%d 16-bit words: check width and height",
				m.Replay, len(b), size, m.Width, m.Height)
		}
		cfg.Frames = nil
		for off := 0; off < len(b); off += size {
			cfg.Frames = append(cfg.Frames, b[off:off+size])
		}
	} else if m.Width != cfg.Width || m.Height != cfg.Height {
		if m.Width > cfg.Width || m.Height > cfg.Height {
			return nil, fmt.Errorf("the test chart has %dx%d pixels, %dx%d are wanted: name a file to replay", cfg.Width, cfg.Height, m.Width, m.Height)
		}
		var err error
		if cfg, err = cfg.Crop(m.Width, m.Height); err != nil {
			return nil, err
		}
	}
	cfg.Width, cfg.Height, cfg.Shift = m.Width, m.Height, *m.Shift
	cfg.Format = fpga.FourCC(pipeline.RGGB10)
	cfg.Period, cfg.Exposure = m.Rate.V.Period(), m.Exposure.V
	return model.NewSensor(cfg)
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
		sink, err = a.fpgaSink(c, own)
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
func (a *appliance) fpgaSink(c *OutputConfig, own pipeline.Format) (pipeline.Sink, error) {
	sink, err := capture.NewFPGAOutput(context.Background(), capture.FPGAOutputConfig{
		Card: a.devices[c.FPGA.Card].card, Channel: c.FPGA.Channel, Format: own, Name: c.Name, Logger: a.env.log,
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
