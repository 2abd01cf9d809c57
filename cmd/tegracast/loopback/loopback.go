// SPDX-License-Identifier: Apache-2.0

// Package loopback is the validation run: the FPGA copies a surface through its memory to another one, and every byte is
// compared.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// ModelName is the device that needs no hardware.
const ModelName = "model"

// Options are what a validation run does.
type Options struct {
	Device    string        // ModelName, or a device file of the kernel module
	Memory    string        // host or cuda
	Direction string        // h2c, c2h or both: what is measured
	Size      int           // of a surface, in bytes
	Count     int           // of copies
	Limit     time.Duration // for one copy
	JSON      bool
	Card      Card
}

// DefaultOptions are those of the command.
func DefaultOptions() Options {
	return Options{Device: ModelName, Memory: "host", Direction: "both", Size: 1 << 20, Count: 10, Limit: copyLimit, Card: DefaultCard()}
}

// Check refuses what cannot be.
func (o Options) Check() error {
	switch {
	case o.Device != ModelName && !filepath.IsAbs(o.Device):
		return fmt.Errorf("--device %s: use model, or a device file such as %s", o.Device, tegra.DefaultDevice)
	case o.Direction != "both" && o.Direction != "h2c" && o.Direction != "c2h":
		return fmt.Errorf("--direction %s: use h2c, c2h or both", o.Direction)
	case o.Size < 1 || o.Size > tegra.MaxPinSize:
		return fmt.Errorf("--size %d: must be from 1 to %d", o.Size, tegra.MaxPinSize)
	case o.Count < 1:
		return fmt.Errorf("--count %d: must be at least 1", o.Count)
	}
	return o.Card.check()
}

// ways says whether the bytes go both ways, and can be compared.
func (o Options) ways(e engine) (both bool, err error) {
	toCard, fromCard := e.has(fpga.H2C), e.has(fpga.C2H)
	switch {
	case toCard && fromCard:
		return true, nil
	case !toCard && !fromCard:
		return false, fmt.Errorf("the card has no memory-mapped channel %d: name another one with --channel", o.Card.Channel)
	case toCard && o.Direction != "h2c":
		return false, fmt.Errorf("the card has no memory-mapped channel %d from card to host: use --direction h2c, which measures and compares nothing", o.Card.Channel)
	case fromCard && o.Direction != "c2h":
		return false, fmt.Errorf("the card has no memory-mapped channel %d from host to card: use --direction c2h, which measures and compares nothing", o.Card.Channel)
	}
	return false, nil
}

// copyLimit is how long one copy may take: 1 GiB over the slowest link takes 10 s.
const copyLimit = 30 * time.Second

// Run opens the device, does the validation run, and closes it.
func Run(ctx context.Context, e command.Env, o Options) (r Result, err error) {
	if o.Device == ModelName {
		m, err := device.NewModel(e.Log, o.Memory, 1, func(sim *tegrasim.Sim) model.Config { return model.Loopback(sim) })
		if err != nil {
			return r, err
		}
		r, err = validate(ctx, e, m, o)
		return r, errors.Join(err, m.Close())
	}
	board, err := device.OpenBoard(e.Log, o.Device, o.Memory)
	if err != nil {
		return r, err
	}
	r, err = runLoopback(ctx, e, board.Hardware, openerOf(board), o)
	r.Interrupts = board.Function.Raised()
	return r, errors.Join(err, board.Close())
}

// validate is one validation run. What the SMMU refused is a fault, too: the engine does not learn of a write that went
// astray.
func validate(ctx context.Context, e command.Env, m *device.Model, o Options) (Result, error) {
	_, before := m.Sim.Faults()
	result, err := runLoopback(ctx, e, m.Card.Hardware, openXDMA, o)
	if faults, n := m.Sim.Faults(); n > before {
		err = errors.Join(err, fmt.Errorf("the SMMU refused %d accesses, first: %v", n-before, faults[0]))
	}
	return result, err
}

func runLoopback(ctx context.Context, e command.Env, hw capture.Hardware, open opener, o Options) (r Result, err error) {
	for _, kind := range surfaceKinds(hw.Memory) {
		if err := kind.run(ctx, e, hw, open, o, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// A surfaceKind is one of the kinds of memory that a validation run is made with.
type surfaceKind struct {
	name  string // empty: there is one only
	flags cudahost.Flags
}

// surfaceKinds are the specification's two where the GPU shares the memory (GPUDirect RDMA 12.9 §13.4.3).
func surfaceKinds(memory cudahost.Allocator) []surfaceKind {
	if memory.Backend() == "cuda" {
		return []surfaceKind{{"default", cudahost.Mapped}, {"write-combined", cudahost.Mapped | cudahost.WriteCombined}}
	}
	return []surfaceKind{{flags: cudahost.Default}}
}

// run adds what it finds to r.
func (k surfaceKind) run(ctx context.Context, e command.Env, hw capture.Hardware, open opener, o Options, r *Result) (err error) {
	c, err := newCopier(ctx, hw, open, o, k.flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r.Compared = c.compares
	shown := time.Now()
	for i := range o.Count {
		if err := c.hand.fill(uint64(i)); err != nil {
			return err
		}
		if err := c.copy(ctx, o.Limit); err != nil {
			return fmt.Errorf("copy %d of %d: %w", i+1, o.Count, err)
		}
		r.Copies++
		if err := c.compare(r, o.Size); err != nil {
			return err
		}
		if command.Terminal(e.Err) && time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Fprintf(e.Err, "%d of %d copies\n", i+1, o.Count)
		}
	}
	for _, dir := range []fpga.Direction{fpga.H2C, fpga.C2H} {
		if o.Direction == "both" || o.Direction == dir.String() {
			l := c.lanes[dir].result(dir, c.engine.width(), o.Card.Clock*1e6)
			l.Memory = k.name
			r.Lanes = append(r.Lanes, l)
		}
	}
	return nil
}
