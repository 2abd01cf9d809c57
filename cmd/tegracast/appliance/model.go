// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

func init() { addSource((*sourceOpener).openModel) }

// openModel creates an FPGA model with a sensor and opens it like a real camera.
func (op *sourceOpener) openModel(c *config.Source, k *config.Model) (source, error) {
	s, err := op.modelCamera(c, k)
	if err != nil && !pipeline.DeviceLost(err) && !errors.Is(err, xdma.ErrGone) {
		err = c.OpenAt.Errorf("%w", err)
	}
	return s, err
}

func (op *sourceOpener) modelCamera(c *config.Source, k *config.Model) (source, error) {
	sensor, err := modelSensor(k)
	if err != nil {
		return nil, err
	}
	card, err := device.NewModel(op.memory.beside(), k.Seed, func(sim *tegrasim.Sim) model.Config {
		cfg := model.Camera(sim, sensor)
		cfg.Faults = faultPlan(k, sim)
		cfg.Sinks = map[int]model.SinkConfig{0: {}} // checks what an fpga output sends
		cfg.Broken = func(err error) { op.log.Error("the driver breaks a rule of the FPGA's DMA engine", "error", err) }
		return cfg
	})
	if err != nil {
		return nil, err
	}
	op.cards.add(c.Card.Name, openCard{card.Card, &modelCard{card, sensor}, card.Close})
	op.cards.follow(c)
	pixel, _ := k.Sensor.Pixel()
	camera, err := capture.NewFPGACamera(capture.FPGAConfig{
		Card: card.Card, Name: c.Name, Recorder: op.recorder, Width: k.Width, Height: k.Height, Pixel: pixel,
		Rate: k.Rate.V, Exposure: k.Exposure.V, Slots: c.Slots, Flags: memoryFlags(c), Logger: op.log, Bare: c.Bare, Triggered: k.Triggered,
		SliceLines: sliceOf(c), OnFrame: func(f *pipeline.Frame) { op.lines.Seen(c.Name, f) },
	})
	if err != nil {
		return nil, err
	}
	return camera, nil
}

// faultPlan returns the faults that the configuration injects. Revocations (F11) affect one pin after the other.
func faultPlan(m *config.Model, sim *tegrasim.Sim) model.FaultPlan {
	var revoked atomic.Uint64
	plan := model.FaultPlan{Seed: m.Seed, Rates: map[model.FaultID]float64{}, Revoke: func() { sim.InvalidateAny(revoked.Add(1)) }}
	for name, rate := range m.Faults {
		if id, err := model.ParseFaultID(name); err == nil { // the configuration was checked
			plan.Rates[id] = rate
		}
	}
	return plan
}

// modelSensor returns a sensor that replays a raw file, or the test chart cut to the configured size.
func modelSensor(m *config.Model) (*model.Sensor, error) {
	cfg := model.TestChartSensor()
	pixel, _ := m.Sensor.Pixel()
	if m.Replay != "" {
		var err error
		if cfg.Frames, err = m.Frames(); err != nil {
			return nil, err
		}
		cfg.Clip = 0 // not known
	} else if m.Width != cfg.Width || m.Height != cfg.Height {
		if m.Width > cfg.Width || m.Height > cfg.Height {
			return nil, fmt.Errorf("the test chart has %dx%d pixels, %dx%d are wanted: name a file to replay",
				cfg.Width, cfg.Height, m.Width, m.Height)
		}
		var err error
		if cfg, err = cfg.Crop(m.Width, m.Height); err != nil {
			return nil, err
		}
	}
	cfg.Width, cfg.Height, cfg.Shift = m.Width, m.Height, *m.Shift
	cfg.Format = fpga.FourCC(pixel)
	cfg.Bare = m.Bare()
	cfg.Readout = m.ReadoutTime()
	cfg.Period = m.Rate.V.Period() // its exposure is that of its frames; the camera's is set separately
	return model.NewSensor(cfg)
}
