// SPDX-License-Identifier: Apache-2.0

// Package loopback performs the validation run: the FPGA copies a surface through its memory to another one, and every
// byte is compared.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// Run opens the device, performs the validation run, and closes it.
func Run(ctx context.Context, e terminal.Env, o Options) (r Result, err error) {
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

// validate performs one validation run on the FPGA model. An access refused by the SMMU is a fault, too, because the
// engine does not notice a stray write.
func validate(ctx context.Context, e terminal.Env, m *device.Model, o Options) (Result, error) {
	_, before := m.Sim.Faults()
	result, err := runLoopback(ctx, e, m.Card.Hardware, openXDMA, o)
	if faults, n := m.Sim.Faults(); n > before {
		err = errors.Join(err, fmt.Errorf("the SMMU refused %d accesses, first: %v", n-before, faults[0]))
	}
	return result, err
}

func runLoopback(ctx context.Context, e terminal.Env, hw capture.Hardware, open opener, o Options) (r Result, err error) {
	r = Result{Device: o.Device, Model: o.Device == ModelName, Memory: hw.Memory.Backend(), Size: o.Size}
	for _, kind := range surfaceKinds(hw.Memory) {
		if r.Interrupted {
			break
		}
		if err := kind.runCopies(ctx, e, hw, open, o, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// A surfaceKind is a kind of memory used by a validation run.
type surfaceKind struct {
	name  string // empty: there is only one
	flags cudahost.Flags
}

// surfaceKinds returns the kinds of memory to validate: default and write-combined memory of CUDA (GPUDirect RDMA 12.9
// §13.4.3), or the only kind of the host back end.
func surfaceKinds(memory cudahost.Allocator) []surfaceKind {
	if memory.Backend() == "cuda" {
		return []surfaceKind{{"default", cudahost.Mapped}, {"write-combined", cudahost.Mapped | cudahost.WriteCombined}}
	}
	return []surfaceKind{{flags: cudahost.Default}}
}

// large is the least size in bytes of a surface whose allocation may take a second.
const large = 64 << 20

// runCopies performs the run and adds its results to r.
func (k surfaceKind) runCopies(ctx context.Context, e terminal.Env, hw capture.Hardware, open opener, o Options, r *Result) (err error) {
	if terminal.Is(e.Err) && o.Size >= large {
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
		if terminal.Is(e.Err) && time.Since(shown) > time.Second {
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
	k.addLanes(c, o, r)
	return nil
}

// addLanes adds the measured lanes of the requested directions to the result.
func (k surfaceKind) addLanes(c *copier, o Options, r *Result) {
	for _, dir := range []fpga.Direction{fpga.H2C, fpga.C2H} {
		if (o.Direction == "both" || o.Direction == dir.String()) && c.lanes[dir].bytes > 0 {
			l := c.lanes[dir].result(dir, c.engine.width(), o.Card.Clock*1e6)
			l.Memory = k.name
			r.Lanes = append(r.Lanes, l)
		}
	}
}
