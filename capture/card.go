// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/tegra"
)

// Hardware holds what is needed to use one card: the registers and interrupts of the device, the pinner of memory for
// it, and the allocator of that memory.
type Hardware struct {
	Name       string // used in errors; may be empty
	BARs       []fpga.BAR
	Interrupts fpga.Interrupts
	Pinner     tegra.Pinner
	Memory     cudahost.Allocator
	Poll       bool // poll for completions in memory instead of waiting for interrupts (PG195, poll mode)

	// Halt receives the register accesses that stop the DMA engine, for code that takes memory away from the engine
	// without the help of its driver. It may be nil.
	Halt func([]fpga.HaltOp) error

	// Reset resets only this function (function level reset), for all its users; afterwards a fence is up. It returns
	// an error that wraps errors.ErrUnsupported if the function has no such reset. Reset is nil if the hardware cannot
	// be reset this way at all.
	Reset func() error
}

// OpenXDMA finds the XDMA core, which must not be in use in this process, and calls Halt with its halt list. A fence
// raised by the kernel module, or left behind by another process, is lifted after all channels have stopped.
func (h Hardware) OpenXDMA(ctx context.Context) (*xdma.Device, error) {
	fencer, generation, fenced := h.fence()
	d, err := xdma.Open(xdma.Config{BARs: h.BARs, Interrupts: h.Interrupts, Poll: h.Poll, Alloc: CoherentMemory(h.Pinner)})
	if err != nil {
		return nil, h.name(err)
	}
	if h.Halt != nil {
		if err := h.Halt(d.HaltList()); err != nil {
			return nil, err
		}
	}
	if !fenced {
		return d, nil
	}
	for _, c := range d.Channels() {
		if err := d.Recover(ctx, c.Direction, c.Channel); err != nil {
			return nil, fmt.Errorf("while fenced: %w", err)
		}
	}
	return d, fencer.Resume(generation)
}

// name adds the name of the card to an error.
func (h Hardware) name(err error) error {
	if h.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", h.Name, err)
}

// fence returns the state of the function's fence, and the pinner as a Fencer, or nil if it is not one.
func (h Hardware) fence() (fencer tegra.Fencer, generation uint64, fenced bool) {
	if fencer, _ = h.Pinner.(tegra.Fencer); fencer != nil {
		generation, fenced = fencer.Fenced()
	}
	return fencer, generation, fenced
}

// A Card is one FPGA, which several cameras and outputs may share. Each of them has its own DMA channel.
type Card struct {
	Hardware

	pinned pinCount
	clock  Clock // of the timestamp counter, which the cameras share

	discipline atomic.Pointer[Discipline] // nil: the counter follows no clock
	open       atomic.Int32               // sessions of cameras with a camera block
	running    atomic.Int32               // of these, those that capture

	mu    sync.Mutex
	xdma  *xdma.Device
	still map[any]bool    // users whose memory was revoked and who have not stopped since
	stuck map[engine]bool // engines that had not stopped when their memory was released, and may still run

	resetting sync.Mutex // held during a reset, and while the counter is read for a Discipline
	reset     time.Time  // time of the latest successful reset; guarded by resetting
}

// NewCard returns a card. Its DMA engine is opened when it is first needed.
func NewCard(h Hardware) *Card {
	return &Card{Hardware: h, still: map[any]bool{}, stuck: map[engine]bool{}}
}

// engine identifies a DMA channel of a card.
type engine struct {
	dir     fpga.Direction
	channel int
}

// abandon must be called before releasing memory that an engine may still use because it does not stop. Otherwise the bus
// addresses would be reused at once, and the engine would access memory that then belongs to others. abandon raises the
// fence, if the hardware has one, and the fence stays until the engine has stopped.
func (c *Card) abandon(dir fpga.Direction, channel int) error {
	c.mu.Lock()
	c.stuck[engine{dir, channel}] = true
	c.mu.Unlock()
	fencer, _, _ := c.fence()
	if fencer == nil {
		return nil
	}
	return except(fencer.Fence(), tegra.ErrGone)
}

// idle stops all abandoned engines except recovered, which is the caller's and has already been stopped. It fails if
// one does not stop.
func (c *Card) idle(ctx context.Context, device *xdma.Device, recovered engine) error {
	c.mu.Lock()
	delete(c.stuck, recovered)
	stuck := slices.Collect(maps.Keys(c.stuck))
	c.mu.Unlock()
	for _, e := range stuck {
		if err := device.Recover(ctx, e.dir, e.channel); err != nil {
			return fmt.Errorf("%w; another engine of the card has not stopped: %w", tegra.ErrFenced, err)
		}
		c.mu.Lock()
		delete(c.stuck, e)
		c.mu.Unlock()
	}
	return nil
}

// revoked records that memory of a user was taken away. Until that user has stopped, its engine may still access the
// old addresses, so the fence must stay.
func (c *Card) revoked(user any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.still[user] = true
}

// stopped records that a user's engine has stopped, or cannot reach any memory.
func (c *Card) stopped(user any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.still, user)
}

// mayResume reports whether all other users whose memory was revoked have stopped.
func (c *Card) mayResume(user any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for u := range c.still {
		if u != user {
			return false
		}
	}
	return true
}

// resetFunction resets the card's function, unless another recovering user has done so after since. It returns
// errors.ErrUnsupported if Reset is nil.
func (c *Card) resetFunction(since time.Time) error {
	if c.Reset == nil {
		return errors.ErrUnsupported
	}
	c.resetting.Lock()
	defer c.resetting.Unlock()
	if c.reset.After(since) {
		return nil
	}
	err := c.Reset()
	if err == nil {
		c.reset = time.Now()
	}
	return err
}

// mapTime updates the map of the timestamp counter, which read reads, if an update is due, or at once if back is true:
// the counter may have gone back. It reports whether the counter has stepped. A Discipline, if there is one, usually
// updates the map before that.
func (c *Card) mapTime(read func() uint64, back bool) (stepped bool) {
	due, d := c.clock.due(time.Now()), c.discipline.Load()
	stepped = (back || due) && c.clock.Update(read, false)
	switch {
	case d == nil:
	case stepped:
		d.mend()
	case due:
		d.settleStale(time.Now())
	}
	return stepped
}

// mapAgain maps the timestamp counter for a new session, before which it may have been reset.
func (c *Card) mapAgain(read func() uint64) {
	d := c.discipline.Load()
	c.clock.Update(read, d == nil) // other cameras go on with what was set
	if d != nil {
		d.mend()
	}
}

// dma returns the DMA engine. It is opened once; after a failure each user recovers its own channel.
func (c *Card) dma(ctx context.Context) (*xdma.Device, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.xdma == nil {
		d, err := c.OpenXDMA(ctx)
		if err != nil {
			return nil, err
		}
		c.xdma = d
	}
	return c.xdma, nil
}

// channel returns the engine after bringing a user's channel into a state in which it can be started, whatever happened
// to it before. It lifts the fence if one is up, and returns an error if that is not possible, for instance because
// more memory was revoked meanwhile, or because another user's engine has not stopped yet.
func (c *Card) channel(ctx context.Context, user any, dir fpga.Direction, index int) (*xdma.Device, error) {
	fencer, generation, fenced := c.fence()
	device, err := c.dma(ctx)
	if err != nil {
		return nil, err
	}
	if err := device.Recover(ctx, dir, index); err != nil {
		return nil, err
	}
	switch {
	case !fenced:
		return device, nil
	case !c.mayResume(user):
		return nil, fmt.Errorf("%w; another user of the card has not stopped yet", tegra.ErrFenced)
	}
	if err := c.idle(ctx, device, engine{dir, index}); err != nil {
		return nil, err
	}
	c.stopped(user)
	return device, fencer.Resume(generation)
}
