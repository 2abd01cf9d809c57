package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"tegracast/capture"
	"tegracast/cudahost"
	"tegracast/fpga"
	"tegracast/fpga/edu"
	"tegracast/fpga/model"
	"tegracast/fpga/xdma"
	"tegracast/pipeline"
	"tegracast/tegra"
	"tegracast/tegra/tegrasim"
)

const loopbackUsage = `Usage: tegracast loopback [--device model|/dev/tegra_p2pN]
         [--memory host|cuda] [--direction h2c|c2h|both] [--size BYTES]
         [--count N] [--json]

The validation run: a source surface is filled, the FPGA copies it through its
memory to a destination surface, and every byte is compared. --direction says
which way is measured; the bytes always go both ways, or there would be nothing
to compare. Bandwidth is checked against the engine's own counters, where it has
some. Status 0 when every byte is right, 1 after a mismatch or a fault.

A device file is one of the kernel module tegra_p2p. What stands behind it is
found by its PCI id: 10ee:* an FPGA with AMD's XDMA and 64 KiB of memory behind
its first memory-mapped channels; 1234:11e8 QEMU's edu; 1af4:1110 the FPGA model
outside of a virtual machine.
`

// modelName is the device that needs no hardware.
const modelName = "model"

type loopbackOptions struct {
	device, memory, direction string
	size, count               int
	limit                     time.Duration // for one copy
	json                      bool
}

// copyLimit is how long one copy may take: 1 GiB over the slowest link takes 10 s.
const copyLimit = 30 * time.Second

func loopback(ctx context.Context, e env, args []string) error {
	o := loopbackOptions{limit: copyLimit}
	f := e.flags("loopback", loopbackUsage)
	f.StringVar(&o.device, "device", modelName, "the FPGA: model, or a device file of the kernel module such as "+defaultBoard)
	f.StringVar(&o.memory, "memory", "host", "memory of the surfaces: host or cuda")
	f.StringVar(&o.direction, "direction", "both", "what is measured: h2c, c2h or both")
	f.IntVar(&o.size, "size", 1<<20, "`BYTES` of a surface, from 1 on")
	f.IntVar(&o.count, "count", 10, "how often it is copied, `N`")
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

// A lane is one direction's prepared transfers and what they measured.
type lane struct {
	transfers []transfer
	bytes     uint64
	elapsed   time.Duration
	counters  xdma.Counters
	parts     uint64
	latency   pipeline.Histogram
}

// A copier copies one surface to the other through the card.
type copier struct {
	src, dst *capture.Surface
	lanes    [2]lane // by fpga.Direction
	width    int
}

func runLoopback(ctx context.Context, e env, hw capture.Hardware, open opener, o loopbackOptions) (r loopbackResult, err error) {
	c, err := newCopier(ctx, hw, open, o.size)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	shown := time.Now()
	for i := range o.count {
		fill(c.src.Buffer.Bytes(), uint64(i))
		invert(c.dst.Buffer.Bytes(), c.src.Buffer.Bytes())
		if err := c.copy(ctx, o.limit); err != nil {
			return r, fmt.Errorf("copy %d of %d: %w", i+1, o.count, err)
		}
		r.Copies++
		if at, ok := c.mismatch(); !ok {
			r.Wrong++
			if r.Mismatch == "" {
				r.Mismatch = fmt.Sprintf("copy %d, byte %d: %#02x arrived, %#02x was sent", i+1, at, c.dst.Buffer.Bytes()[at], c.src.Buffer.Bytes()[at])
			}
		}
		if isTerminal(e.err) && time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Fprintf(e.err, "%d of %d copies\n", i+1, o.count)
		}
	}
	for _, dir := range []fpga.Direction{fpga.H2C, fpga.C2H} {
		if o.direction == "both" || o.direction == dir.String() {
			r.Lanes = append(r.Lanes, c.lanes[dir].result(dir, c.width))
		}
	}
	return r, nil
}

// newCopier pins the surfaces and prepares a transfer each way for every window of the engine's memory.
func newCopier(ctx context.Context, hw capture.Hardware, open opener, size int) (c *copier, err error) {
	c = &copier{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	e, err := open(ctx, hw)
	if err != nil {
		return c, err
	}
	if c.src, err = capture.NewSurface(hw.Memory, hw.Pinner, size, cudahost.Default, tegra.ToDevice); err != nil {
		return c, err
	}
	if c.dst, err = capture.NewSurface(hw.Memory, hw.Pinner, size, cudahost.Default, tegra.FromDevice); err != nil {
		return c, err
	}
	c.width = e.width()
	for dir, mem := range []fpga.Memory{fpga.H2C: c.src.Memory, fpga.C2H: c.dst.Memory} {
		for off := 0; off < size; off += e.window() {
			part := mem.Slice(off, min(e.window(), size-off))
			t, err := e.prepare(fpga.Direction(dir), part)
			if err != nil {
				return c, err
			}
			c.lanes[dir].transfers = append(c.lanes[dir].transfers, t)
			c.lanes[dir].parts += uint64(len(part.Segments))
		}
	}
	return c, nil
}

// copy moves the whole surface, window by window.
func (c *copier) copy(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for i := range c.lanes[fpga.H2C].transfers {
		for dir := range c.lanes {
			l := &c.lanes[dir]
			r, err := l.transfers[i].Run(ctx)
			if err != nil {
				return fmt.Errorf("window %d: %w", i, err)
			}
			l.bytes += uint64(r.Bytes)
			l.elapsed += r.Elapsed
			l.counters.Bytes += r.Counters.Bytes
			l.counters.Cycles += r.Counters.Cycles
			l.latency.Observe(r.Elapsed)
		}
	}
	return nil
}

// mismatch compares the surfaces. Beyond their end, where the pin was rounded up, nothing may have been written.
func (c *copier) mismatch() (at int, ok bool) {
	src, dst := c.src.Buffer.Bytes(), c.dst.Buffer.Bytes()
	size := len(c.src.Memory.Bytes)
	if !bytes.Equal(src[:size], dst[:size]) {
		for i := range size {
			if src[i] != dst[i] {
				return i, false
			}
		}
	}
	for i := size; i < len(dst); i++ {
		if dst[i] != ^src[i] {
			return i, false
		}
	}
	return 0, true
}

// Close gives everything back.
func (c *copier) Close() error {
	var errs []error
	for i := range c.lanes {
		l := &c.lanes[i]
		for _, t := range l.transfers {
			err := t.Close()
			if errors.Is(err, xdma.ErrBusy) || errors.Is(err, edu.ErrBusy) { // what it still does ends in the IOMMU
				err = errors.Join(err, t.Abandon())
			}
			errs = append(errs, err)
		}
	}
	for _, s := range []*capture.Surface{c.src, c.dst} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// fill writes random bytes that differ with every seed.
func fill(b []byte, seed uint64) {
	rng := rand.NewPCG(seed, 0x1005bacc)
	for len(b) >= 8 {
		binary.NativeEndian.PutUint64(b, rng.Uint64())
		b = b[8:]
	}
}

// invert makes every byte of dst differ from src's.
func invert(dst, src []byte) {
	for i, v := range src {
		dst[i] = ^v
	}
}
