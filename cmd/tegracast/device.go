package main

import (
	"context"
	"errors"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// modelDevice is the FPGA in software with the memory that it reaches.
type modelDevice struct {
	card   *capture.Card
	device *model.Device
	sensor *model.Sensor // nil without a camera
	sim    *tegrasim.Sim
	cancel context.CancelFunc
	ended  chan error
}

// newModelDevice plugs a model in. configure gets the bus and returns what stands on the card.
func newModelDevice(e env, backend string, seed uint64, configure func(*tegrasim.Sim) model.Config) (*modelDevice, error) {
	sim, err := tegrasim.New(tegrasim.Config{Seed: seed})
	if err != nil {
		return nil, err
	}
	memory, err := cudahost.Open(cudahost.Config{Backend: backend, Invalidator: sim, Logger: e.log})
	if err != nil {
		return nil, errors.Join(usageError{err}, sim.Close())
	}
	m, err := model.New(configure(sim))
	if err != nil {
		return nil, errors.Join(err, memory.Close(), sim.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &modelDevice{
		card:   capture.NewCard(capture.Hardware{BARs: m.BARs(), Interrupts: m.Interrupts(), Pinner: sim, Memory: memory}),
		device: m, sim: sim, cancel: cancel, ended: make(chan error, 1),
	}
	go func() { d.ended <- m.Run(ctx) }()
	return d, nil
}

// Close unplugs the model. What was pinned must have been unpinned.
func (d *modelDevice) Close() error {
	d.cancel()
	return errors.Join(<-d.ended, d.card.Memory.Close(), d.sim.Close())
}
