// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/tegra"
)

// Hardware is what a card stands on: the device's registers and interrupts, who pins memory for it, and who makes that
// memory.
type Hardware struct {
	Name       string // what errors call it; may be empty
	BARs       []fpga.BAR
	Interrupts fpga.Interrupts
	Pinner     tegra.Pinner
	Memory     cudahost.Allocator
	Poll       bool // completions are looked for in memory, and no interrupt is waited for (PG195, poll mode)

	// Halt is given the accesses that stop the DMA engine, for whoever takes memory from it without its driver; may be nil.
	Halt func([]fpga.HaltOp) error

	// Reset resets the function alone (function level reset), for all who use it; a fence is up afterwards. Its error wraps
	// errors.ErrUnsupported when the function has no such reset. nil: none has.
	Reset func() error
}

// OpenXDMA finds the XDMA core, which nobody in this process uses yet, and says how it is halted. A fence, of the
// kernel module or left behind by another process, is lifted when all channels have stopped.
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

// name says which card an error is of.
func (h Hardware) name(err error) error {
	if h.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", h.Name, err)
}

// fence asks the pinner, if it is a Fencer, whether the function is fenced.
func (h Hardware) fence() (fencer tegra.Fencer, generation uint64, fenced bool) {
	if fencer, _ = h.Pinner.(tegra.Fencer); fencer != nil {
		generation, fenced = fencer.Fenced()
	}
	return fencer, generation, fenced
}

// A Card is one FPGA, which several cameras and outputs may share. Each has a DMA channel of its own.
type Card struct {
	Hardware

	pinned pinCount

	mu    sync.Mutex
	xdma  *xdma.Device
	still map[any]bool    // whose memory was revoked, and who has not stopped since
	stuck map[engine]bool // whose memory was given back although they do not stop

	resetting sync.Mutex // one reset at a time
	reset     time.Time  // when the last one was done; under resetting
}

// NewCard returns the card. Its DMA engine is looked for when it is needed first.
func NewCard(h Hardware) *Card {
	return &Card{Hardware: h, still: map[any]bool{}, stuck: map[engine]bool{}}
}

// engine is a channel of a card.
type engine struct {
	dir     fpga.Direction
	channel int
}

// abandon is called before memory is given back that an engine may still use, because it does not stop. The bus addresses would be given
// out again at once, and the engine would go on in the memory of others. So the fence is raised, and stays until the engine has stopped.
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

// idle fails while an engine that was abandoned has not stopped. The caller's own has: it is recovered.
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

// revoked notes that memory of a user was taken away: until that user has stopped, its engine may still go for the old
// addresses, and the fence must stay.
func (c *Card) revoked(user any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.still[user] = true
}

// stopped notes that a user's engine has stopped, or cannot reach any memory.
func (c *Card) stopped(user any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.still, user)
}

// mayResume says whether everybody else has stopped whose memory was revoked.
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

// resetFunction resets the card's function, unless that has been done after since by another user who recovers.
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

// dma is the DMA engine. It is opened once; who fails later recovers his own channel.
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

// channel returns the engine with a user's channel ready to be started: whatever has happened to it before. A fence that
// a revocation has put up is lifted, unless more memory was revoked meanwhile, or another user still has to stop.
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
