// SPDX-License-Identifier: Apache-2.0

// Package loopback is the validation run: the FPGA copies a surface through its memory to another one, and every byte is
// compared.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// Run opens the device, does the validation run, and closes it.
func Run(ctx context.Context, e command.Env, o Options) (r Result, err error) {
	if o.Device == ModelName {
		m, err := device.NewModel(cudahost.Config{Backend: o.Memory, Logger: e.Log}, 1, func(sim *tegrasim.Sim) model.Config { return model.Loopback(sim) })
		if err != nil {
			return r, err
		}
		r, err = validate(ctx, e, m, o)
		return r, errors.Join(err, m.Close())
	}
	board, err := device.OpenBoard(cudahost.Config{Backend: o.Memory, Logger: e.Log}, o.Device)
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
	r = Result{Device: o.Device, Model: o.Device == ModelName, Memory: hw.Memory.Backend(), Size: o.Size}
	for _, kind := range surfaceKinds(hw.Memory) {
		if r.Interrupted {
			break
		}
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

// large is a size in bytes at which memory may take a second to make.
const large = 64 << 20

// run adds what it finds to r.
func (k surfaceKind) run(ctx context.Context, e command.Env, hw capture.Hardware, open opener, o Options, r *Result) (err error) {
	if command.Terminal(e.Err) && o.Size >= large {
		fmt.Fprintf(e.Err, "surfaces of %d bytes are being made\n", o.Size)
	}
	c, err := newCopier(ctx, hw, open, o, k.flags)
	if errors.Is(err, context.Canceled) {
		r.Interrupted = true
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r.Compared = c.compares
	shown, before := time.Now(), r.Copies
	c.moved = func(bytes int) {
		if command.Terminal(e.Err) && time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Fprintf(e.Err, "%d of %d copies, and %d %% of the next\n", r.Copies-before, o.Count, 100*int64(bytes)/int64(o.Size))
		}
	}
	for i := range o.Count {
		if err := c.once(ctx, o, i, r); errors.Is(err, context.Canceled) {
			r.Interrupted = true
			break
		} else if err != nil {
			return fmt.Errorf("copy %d of %d: %w", i+1, o.Count, err)
		}
	}
	k.tell(c, o, r)
	return nil
}

// tell adds the lanes that something was measured of.
func (k surfaceKind) tell(c *copier, o Options, r *Result) {
	for _, dir := range []fpga.Direction{fpga.H2C, fpga.C2H} {
		if (o.Direction == "both" || o.Direction == dir.String()) && c.lanes[dir].bytes > 0 {
			l := c.lanes[dir].result(dir, c.engine.width(), o.Card.Clock*1e6)
			l.Memory = k.name
			r.Lanes = append(r.Lanes, l)
		}
	}
}
