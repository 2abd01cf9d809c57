// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/edu"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
)

// A lane is one direction with its measurements. It has no memory if the card lacks the direction.
type lane struct {
	memory   fpga.Memory
	bytes    uint64
	elapsed  time.Duration
	counters xdma.Counters
	parts    uint64 // number of memory segments in all transfers together
	latency  pipeline.Histogram
}

// A copier copies one surface to the other through the card, or uses only one of them if the card has a single direction.
type copier struct {
	src, dst *capture.Surface
	hand     hand
	engine   engine
	lanes    [2]lane // by fpga.Direction
	compares bool    // the card has both directions

	moved func(bytes int) // called with the number of bytes that the current copy has moved so far

	reason atomic.Value // tegra.Reason for which the kernel has revoked the memory
}

// newCopier opens the engine, and allocates and pins the surfaces.
func newCopier(ctx context.Context, hw capture.Hardware, open opener, o Options, flags cudahost.Flags) (c *copier, err error) {
	size := o.Size
	c = &copier{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.engine, err = open(ctx, hw, o.Card); err != nil {
		return c, err
	}
	if c.compares, err = o.ways(c.engine); err != nil {
		return c, err
	}
	memory := cudahost.During(ctx, hw.Memory)
	if c.src, err = capture.NewSurface(memory, hw.Pinner, size, flags, tegra.ToDevice); err != nil {
		return c, err
	}
	if c.dst, err = capture.NewSurface(memory, hw.Pinner, size, flags, tegra.FromDevice); err != nil {
		return c, err
	}
	for _, s := range []*capture.Surface{c.src, c.dst} {
		s.Pin.OnFree(func(r tegra.Reason) {
			if r != tegra.ReasonUnpin {
				c.reason.Store(r)
			}
		})
	}
	if c.hand, err = newHand(ctx, hw.Memory, c.src, c.dst); err != nil {
		return c, err
	}
	for dir, mem := range []fpga.Memory{fpga.H2C: c.src.Memory, fpga.C2H: c.dst.Memory} {
		if c.engine.has(fpga.Direction(dir)) {
			c.lanes[dir].memory = mem
		}
	}
	return c, nil
}

// copy copies the whole surface through the engine's memory, window by window.
func (c *copier) copy(ctx context.Context, limit time.Duration) error {
	window := c.engine.window()
	for off := 0; off < c.src.Memory.Size(); off += window {
		n := min(window, c.src.Memory.Size()-off)
		c.moved(off)
		for dir := range c.lanes {
			l := &c.lanes[dir]
			if l.memory.Size() == 0 {
				continue
			}
			bounded, cancel := context.WithTimeout(ctx, limit)
			err := l.transfer(bounded, c.engine, fpga.Direction(dir), l.memory.Slice(off, n))
			cancel()
			if err != nil {
				if ctx.Err() == nil { // otherwise ctx is the reason
					err = c.explained(err)
				}
				return fmt.Errorf("%d bytes from byte %d on: %w", n, off, err)
			}
		}
	}
	return nil
}

// revocationTime is the time to wait, after an error of the engine, for the report that memory was revoked.
const revocationTime = 200 * time.Millisecond

// explained returns err, with the reason if the kernel has revoked the surfaces. The engine may report its own error
// first.
func (c *copier) explained(err error) error {
	late := time.NewTimer(revocationTime)
	defer late.Stop()
	select {
	case <-c.src.Pin.Revoked():
	case <-c.dst.Pin.Revoked():
	case <-late.C:
		return err
	}
	if reason, ok := c.reason.Load().(tegra.Reason); ok {
		return fmt.Errorf("%w: the kernel has taken the memory back: %v", err, reason)
	}
	return err
}

// transfer moves one window. It allocates descriptors per window, because a large surface would need thousands.
func (l *lane) transfer(ctx context.Context, e engine, dir fpga.Direction, mem fpga.Memory) (err error) {
	t, err := e.prepare(dir, mem)
	if err != nil {
		return err
	}
	defer func() {
		closeErr := t.Close()
		if errors.Is(closeErr, xdma.ErrBusy) || errors.Is(closeErr, edu.ErrBusy) { // the IOMMU stops its remaining accesses
			closeErr = errors.Join(closeErr, t.Abandon())
		}
		err = errors.Join(err, closeErr)
	}()
	r, err := t.Run(ctx)
	if err != nil {
		return err
	}
	l.bytes += uint64(r.Bytes)
	l.elapsed += r.Elapsed
	l.counters.Bytes += r.Counters.Bytes
	l.counters.Cycles += r.Counters.Cycles
	l.parts += uint64(len(mem.Segments))
	l.latency.Observe(r.Elapsed)
	return nil
}

// once makes one copy: it fills the surfaces, copies one to the other, and compares them. A copy that ctx interrupts
// does not count.
func (c *copier) once(ctx context.Context, o Options, i int, r *Result) error {
	if err := c.hand.fill(ctx, uint64(i)); err != nil {
		return err
	}
	if err := c.copy(ctx, o.Limit); err != nil {
		return err
	}
	if err := c.compare(ctx, r, o.Size); err != nil {
		return err
	}
	r.Copies++
	return nil
}

// compare checks that the bytes of the latest copy have arrived unchanged. If they have not, it counts the copy as
// wrong in r; that is no error. If the card has a single direction, it does nothing.
func (c *copier) compare(ctx context.Context, r *Result, size int) error {
	if !c.compares {
		return nil
	}
	at, ok, err := c.hand.mismatch(ctx, size)
	if err != nil || ok {
		return err
	}
	r.Wrong++
	if r.Mismatch == "" {
		r.Mismatch = fmt.Sprintf("copy %d, byte %d: %#02x arrived, %#02x was sent", r.Copies+1, at, c.dst.Buffer.Bytes()[at], c.src.Buffer.Bytes()[at])
	}
	return nil
}

// Close releases the surfaces, and the hand that fills and compares them.
func (c *copier) Close() error {
	var errs []error
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

// result returns the measurements of a lane, and whether the host's count agrees with the engine's. Every descriptor
// may end in a partial beat.
func (l *lane) result(dir fpga.Direction, width int, hz float64) LaneResult {
	slack := l.parts * uint64(2*width)
	r := LaneResult{
		Direction: dir.String(), Bytes: l.bytes, EngineBytes: l.counters.Bytes, EngineCycles: l.counters.Cycles,
		Bandwidth: float64(l.bytes) / l.elapsed.Seconds(), Latency: l.latency.Percentiles(), Counted: width > 0, Agree: true,
	}
	if !r.Counted {
		return r
	}
	if l.counters.Cycles > 0 {
		r.EngineRate = float64(l.counters.Bytes) * hz / float64(l.counters.Cycles)
	}
	// The engine is busy only for a part of the time that the host waits, so its own rate is never the lower one.
	r.Agree = r.EngineBytes >= r.Bytes && r.EngineBytes <= r.Bytes+slack && r.EngineRate >= 0.99*r.Bandwidth
	return r
}
