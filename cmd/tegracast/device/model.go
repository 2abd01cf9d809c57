// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// Model is the simulated FPGA with the memory that it can access.
type Model struct {
	Card   *capture.Card
	Device *model.Device
	Sim    *tegrasim.Sim
	cancel context.CancelFunc
	ended  chan error
	stop   func() // ends control
}

// NewModel creates a model with memory as configured by cfg. configure gets the bus and returns the configuration of the
// card.
func NewModel(cfg cudahost.Config, seed uint64, configure func(*tegrasim.Sim) model.Config) (*Model, error) {
	sim, err := tegrasim.New(tegrasim.Config{Seed: seed})
	if err != nil {
		return nil, err
	}
	sim.ExpectFaults(func(f tegrasim.Fault) bool { return model.IsStray(f.IOVA) })
	cfg.Invalidator = sim
	memory, err := cudahost.Open(cfg)
	if err != nil {
		return nil, errors.Join(err, sim.Close())
	}
	m, err := model.New(configure(sim))
	if err != nil {
		return nil, errors.Join(err, memory.Close(), sim.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Model{
		Card:   capture.NewCard(capture.Hardware{BARs: m.BARs(), Interrupts: m.Interrupts(), Pinner: sim, Memory: memory}),
		Device: m, Sim: sim, cancel: cancel, ended: make(chan error, 1),
	}
	if d.stop, err = control(d, seed); err != nil {
		cancel()
		return nil, errors.Join(err, memory.Close(), sim.Close())
	}
	go func() { d.ended <- m.Run(ctx) }()
	return d, nil
}

// Close removes the model. All memory must have been unpinned. The error names accesses that the SMMU refused and that
// were not injected, such as those of descriptors that outlived their memory.
func (d *Model) Close() error {
	d.stop()
	d.cancel()
	return errors.Join(<-d.ended, d.Card.Memory.Close(), d.Sim.Close()) // ends: cancel has ended its context
}
