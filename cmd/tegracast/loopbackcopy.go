package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tegracast/capture"
	"tegracast/cudahost"
	"tegracast/fpga"
	"tegracast/fpga/edu"
	"tegracast/fpga/xdma"
	"tegracast/pipeline"
	"tegracast/tegra"
)

// A lane is one direction's prepared transfers and what they measured.
type lane struct {
	transfers []transfer
	bytes     uint64
	elapsed   time.Duration
	counters  xdma.Counters
	parts     uint64
	latency   pipeline.Histogram
}

// A copier copies one surface to the other through the card; or one of them only, where the card has one direction.
type copier struct {
	src, dst *capture.Surface
	hand     hand
	lanes    [2]lane // by fpga.Direction
	width    int
	windows  int
	compares bool // the bytes go both ways
}

// newCopier pins the surfaces and prepares a transfer each way for every window of the engine's memory.
func newCopier(ctx context.Context, hw capture.Hardware, open opener, o loopbackOptions, flags cudahost.Flags) (c *copier, err error) {
	size := o.size
	c = &copier{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	e, err := open(ctx, hw, o.card)
	if err != nil {
		return c, err
	}
	if c.compares, err = o.ways(e); err != nil {
		return c, err
	}
	if c.src, err = capture.NewSurface(hw.Memory, hw.Pinner, size, flags, tegra.ToDevice); err != nil {
		return c, err
	}
	if c.dst, err = capture.NewSurface(hw.Memory, hw.Pinner, size, flags, tegra.FromDevice); err != nil {
		return c, err
	}
	if c.hand, err = newHand(hw.Memory, c.src, c.dst); err != nil {
		return c, err
	}
	c.width = e.width()
	c.windows = (size + e.window() - 1) / e.window()
	for dir, mem := range []fpga.Memory{fpga.H2C: c.src.Memory, fpga.C2H: c.dst.Memory} {
		if !e.has(fpga.Direction(dir)) {
			continue
		}
		if err := c.lanes[dir].prepare(e, fpga.Direction(dir), mem); err != nil {
			return c, err
		}
	}
	return c, nil
}

// prepare makes a transfer for every window of the engine's memory.
func (l *lane) prepare(e engine, dir fpga.Direction, mem fpga.Memory) error {
	for off := 0; off < mem.Size(); off += e.window() {
		part := mem.Slice(off, min(e.window(), mem.Size()-off))
		t, err := e.prepare(dir, part)
		if err != nil {
			return err
		}
		l.transfers = append(l.transfers, t)
		l.parts += uint64(len(part.Segments))
	}
	return nil
}

// copy moves the whole surface, window by window.
func (c *copier) copy(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for i := range c.windows {
		for dir := range c.lanes {
			l := &c.lanes[dir]
			if len(l.transfers) == 0 {
				continue
			}
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

// compare looks whether the bytes of the last copy have arrived as they were sent.
func (c *copier) compare(r *loopbackResult, size int) error {
	if !c.compares {
		return nil
	}
	at, ok, err := c.hand.mismatch(size)
	if err != nil || ok {
		return err
	}
	r.Wrong++
	if r.Mismatch == "" {
		r.Mismatch = fmt.Sprintf("copy %d, byte %d: %#02x arrived, %#02x was sent", r.Copies, at, c.dst.Buffer.Bytes()[at], c.src.Buffer.Bytes()[at])
	}
	return nil
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
	if c.hand != nil {
		errs = append(errs, c.hand.Close())
	}
	for _, s := range []*capture.Surface{c.src, c.dst} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
