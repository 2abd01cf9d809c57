package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

const loopbackUsage = `Usage: tegracast loopback [--device model|/dev/tegra_p2pN]
         [--memory host|cuda] [--direction h2c|c2h|both] [--size BYTES]
         [--count N] [--address ADDRESS] [--window BYTES] [--channel N]
         [--clock MHZ] [--json]

The validation run: a source surface is filled, the FPGA copies it through its
memory to a destination surface, and every byte is compared. With --memory cuda
kernels on the GPU fill and compare, and all of it is done twice: with ordinary
and with write-combined memory. --direction says
which way is measured; the bytes always go both ways, or there would be nothing
to compare. Bandwidth is checked against the engine's own counters, where it has
some. Status 0 when every byte is right, 1 after a mismatch or a fault.

A device file is one of the kernel module tegra_p2p. An FPGA with AMD's XDMA is
known by the core's own registers, whatever its PCI id is. It needs memory that
its memory-mapped channels reach: by default 64 KiB at address 0 of channel 0.
--address, --window and --channel name another one; large surfaces go through
it piece by piece. A card with channels of one direction is measured with
--direction; nothing is compared then. --clock is the frequency of the core's
data path (axi_aclk), from which the engine's own rate is calculated.
`

// modelName is the device that needs no hardware.
const modelName = "model"

type loopbackOptions struct {
	device, memory, direction string
	size, count               int
	limit                     time.Duration // for one copy
	json                      bool
	card                      cardMemory
}

// ways says whether the bytes go both ways, and can be compared.
func (o loopbackOptions) ways(e engine) (both bool, err error) {
	toCard, fromCard := e.has(fpga.H2C), e.has(fpga.C2H)
	switch {
	case toCard && fromCard:
		return true, nil
	case !toCard && !fromCard:
		return false, fmt.Errorf("the card has no memory-mapped channel %d: name another one with --channel", o.card.channel)
	case toCard && o.direction != "h2c":
		return false, fmt.Errorf("the card has no memory-mapped channel %d from card to host: use --direction h2c, which measures and compares nothing", o.card.channel)
	case fromCard && o.direction != "c2h":
		return false, fmt.Errorf("the card has no memory-mapped channel %d from host to card: use --direction c2h, which measures and compares nothing", o.card.channel)
	}
	return false, nil
}

// copyLimit is how long one copy may take: 1 GiB over the slowest link takes 10 s.
const copyLimit = 30 * time.Second

func loopback(ctx context.Context, e env, args []string) error {
	o := loopbackOptions{limit: copyLimit, card: defaultCard}
	f := e.flags("loopback", loopbackUsage)
	f.StringVar(&o.device, "device", modelName, "the FPGA: model, or a device file of the kernel module such as "+defaultBoard)
	f.StringVar(&o.memory, "memory", "host", "memory of the surfaces: host or cuda")
	f.StringVar(&o.direction, "direction", "both", "what is measured: h2c, c2h or both")
	f.IntVar(&o.size, "size", 1<<20, "`BYTES` of a surface, from 1 on")
	f.IntVar(&o.count, "count", 10, "how often it is copied, `N`")
	f.Uint64Var(&o.card.address, "address", 0, "`ADDRESS` of the memory on the card")
	f.IntVar(&o.card.window, "window", defaultCard.window, "`BYTES` that this memory has")
	f.IntVar(&o.card.channel, "channel", 0, "DMA channel `N` of each direction, 0 to 3")
	f.Float64Var(&o.card.clock, "clock", defaultCard.clock, "clock of the core's data path in `MHZ`")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case o.device != modelName && !filepath.IsAbs(o.device):
		return usageError{fmt.Errorf("--device %s: use model, or a device file such as %s", o.device, defaultBoard)}
	case o.direction != "both" && o.direction != "h2c" && o.direction != "c2h":
		return usageError{fmt.Errorf("--direction %s: use h2c, c2h or both", o.direction)}
	case o.size < 1 || o.size > tegra.MaxPinSize:
		return usageError{fmt.Errorf("--size %d: must be from 1 to %d", o.size, tegra.MaxPinSize)}
	case o.count < 1:
		return usageError{fmt.Errorf("--count %d: must be at least 1", o.count)}
	}
	if err := o.card.check(); err != nil {
		return usageError{err}
	}
	result, err := loopbackOn(ctx, e, o)
	if err != nil {
		return err
	}
	return result.print(e, o)
}

// loopbackOn opens the device, does the validation run, and closes it.
func loopbackOn(ctx context.Context, e env, o loopbackOptions) (r loopbackResult, err error) {
	if o.device == modelName {
		device, err := newModelDevice(e, o.memory, 1, func(sim *tegrasim.Sim) model.Config { return model.Loopback(sim) })
		if err != nil {
			return r, err
		}
		r, err = validate(ctx, e, device, o)
		return r, errors.Join(err, device.Close())
	}
	board, err := openBoard(e, o.device, o.memory)
	if err != nil {
		return r, err
	}
	r, err = runLoopback(ctx, e, board.Hardware, board.open, o)
	r.Interrupts = board.device.Raised()
	return r, errors.Join(err, board.Close())
}

// validate is one validation run. What the SMMU refused is a fault, too: the engine does not learn of a write that went
// astray.
func validate(ctx context.Context, e env, device *modelDevice, o loopbackOptions) (loopbackResult, error) {
	_, before := device.sim.Faults()
	result, err := runLoopback(ctx, e, device.card.Hardware, openXDMA, o)
	if faults, n := device.sim.Faults(); n > before {
		err = errors.Join(err, fmt.Errorf("the SMMU refused %d accesses, first: %v", n-before, faults[0]))
	}
	return result, err
}

func runLoopback(ctx context.Context, e env, hw capture.Hardware, open opener, o loopbackOptions) (r loopbackResult, err error) {
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
func (k surfaceKind) run(ctx context.Context, e env, hw capture.Hardware, open opener, o loopbackOptions, r *loopbackResult) (err error) {
	c, err := newCopier(ctx, hw, open, o, k.flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r.Compared = c.compares
	shown := time.Now()
	for i := range o.count {
		if err := c.hand.fill(uint64(i)); err != nil {
			return err
		}
		if err := c.copy(ctx, o.limit); err != nil {
			return fmt.Errorf("copy %d of %d: %w", i+1, o.count, err)
		}
		r.Copies++
		if err := c.compare(r, o.size); err != nil {
			return err
		}
		if isTerminal(e.err) && time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Fprintf(e.err, "%d of %d copies\n", i+1, o.count)
		}
	}
	for _, dir := range []fpga.Direction{fpga.H2C, fpga.C2H} {
		if o.direction == "both" || o.direction == dir.String() {
			l := c.lanes[dir].result(dir, c.engine.width(), o.card.clock*1e6)
			l.Memory = k.name
			r.Lanes = append(r.Lanes, l)
		}
	}
	return nil
}
