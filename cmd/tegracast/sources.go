package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// source is one that is closed after use.
type source interface {
	pipeline.Source
	Close() error
}

func (a *appliance) addSource(d *document, f *flow, i int) error {
	c := &d.Sources[i]
	var s source
	var err error
	path := fmt.Sprintf("$.sources[%d]", i)
	switch {
	case c.FPGA != nil:
		if s, err = a.camera(c); err != nil { // no fault of the configuration
			return fmt.Errorf("source %s: %w", c.Name, err)
		}
	case c.Model != nil:
		if c.Model.Replay != "" {
			path += ".model.replay"
		}
		s, err = a.modelCamera(c)
	default:
		path += ".file.path"
		s, err = replay(c, slots{a.memory})
	}
	if pipeline.DeviceLost(err) {
		return fmt.Errorf("source %s: %w", c.Name, err)
	} else if err != nil {
		return usageError{d.errorAt(path, "%v", err)}
	}
	a.mu.Lock() // the LED looks at the sources
	f.source, f.closers = s, append(f.closers, s.Close)
	a.mu.Unlock()
	return f.graph.AddSource(c.Name, s)
}

// camera opens a camera of an FPGA, whose device file is opened for its first one.
func (a *appliance) camera(c *SourceConfig) (source, error) {
	card := a.cards[c.card()]
	if card == nil {
		if _, err := a.pins.reset(context.Background(), c.card()); err != nil {
			return nil, fmt.Errorf("gpio.reset: %w", err)
		}
		board, err := openBoard(a.env, c.card(), a.memory.Backend())
		if err != nil {
			return nil, err
		}
		if board.Poll = c.FPGA.Poll; board.Poll {
			a.env.log.Info("completions of the FPGA are polled", "device", c.card())
		}
		card = capture.NewCard(board.Hardware)
		a.mu.Lock()
		a.cards[c.card()], a.devices[c.card()] = card, board.Close
		a.mu.Unlock()
	}
	pixel, _ := c.FPGA.Sensor.pixel()
	camera, err := capture.NewFPGACamera(capture.FPGAConfig{
		Reset: func(ctx context.Context) (bool, error) { return a.pins.reset(ctx, c.card()) },
		Card:  card, Number: c.FPGA.Camera, Name: c.Name, Recorder: a.recorder, Width: c.FPGA.Width, Height: c.FPGA.Height, Pixel: pixel,
		Rate: c.FPGA.Rate.V, Exposure: c.FPGA.Exposure.V, Gain: c.FPGA.Gain, Slots: c.Slots, Flags: c.flags(), Logger: a.env.log,
		Triggered: c.FPGA.Triggered, Bare: c.bare(), Channel: c.FPGA.Channel,
	})
	if err != nil {
		return nil, err
	}
	return &watchedCamera{camera, c.Name, a.pins}, nil
}

// watchedCamera is a camera whose frames the GPIO lines see before the graph does.
type watchedCamera struct {
	*capture.FPGACamera
	name string
	pins *pins
}

// Run implements pipeline.Source.
func (w *watchedCamera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	return w.FPGACamera.Run(ctx, func(f *pipeline.Frame) {
		w.pins.seen(w.name, f)
		emit(f)
	})
}

// replay opens a file source: YUV4MPEG2, or headerless Bayer frames.
func replay(c *SourceConfig, pool slots) (source, error) {
	cfg := capture.ReplayConfig{Path: c.File.Path, Rate: c.File.Rate.V, Loop: !c.File.Once, Slots: c.Slots, Allocator: pool}
	if f, known := c.format(); known {
		cfg.Format = f
	}
	return capture.NewReplay(cfg)
}

// modelCamera plugs in an FPGA model with a sensor and opens it as the real camera is opened.
func (a *appliance) modelCamera(c *SourceConfig) (source, error) {
	sensor, err := modelSensor(c.Model)
	if err != nil {
		return nil, err
	}
	device, err := newModelDevice(a.env, a.memory.Backend(), c.Model.Seed, func(sim *tegrasim.Sim) model.Config {
		cfg := model.Camera(sim, sensor)
		cfg.Faults = faultPlan(c.Model, sim)
		cfg.Sinks = map[int]model.SinkConfig{0: {}} // checks what an fpga output sends
		return cfg
	})
	if err != nil {
		return nil, err
	}
	device.sensor = sensor
	a.mu.Lock()
	a.cards[c.card()], a.models[c.card()], a.devices[c.card()] = device.card, device, device.Close
	a.mu.Unlock()
	pixel, _ := c.Model.Sensor.pixel()
	camera, err := capture.NewFPGACamera(capture.FPGAConfig{
		Card: device.card, Name: c.Name, Recorder: a.recorder, Width: c.Model.Width, Height: c.Model.Height, Pixel: pixel,
		Rate: c.Model.Rate.V, Exposure: c.Model.Exposure.V, Slots: c.Slots, Flags: c.flags(), Logger: a.env.log,
		Bare: c.bare(),
	})
	if err != nil {
		return nil, err
	}
	return &watchedCamera{camera, c.Name, a.pins}, nil
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
	pixel, _ := m.Sensor.pixel()
	if m.Replay != "" {
		b, err := os.ReadFile(m.Replay)
		if err != nil {
			return nil, err
		}
		size := pixel.LineBytes(m.Width) * m.Height
		if len(b) == 0 || len(b)%size != 0 {
			return nil, fmt.Errorf("%s has %d bytes, no multiple of the %d of one frame of %dx%d: check width and height, and sensor",
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
	cfg.Format = fpga.FourCC(pixel)
	cfg.Bare = m.Stream == bareStream
	cfg.Period = m.Rate.V.Period() // its exposure is that of the frames; the camera is told another one
	return model.NewSensor(cfg)
}
