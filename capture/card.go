package capture

import (
	"context"
	"sync"

	"tegracast/cudahost"
	"tegracast/fpga"
	"tegracast/fpga/xdma"
	"tegracast/tegra"
)

// Hardware is what a card stands on: the device's registers and interrupts, who pins memory for it, and who makes that
// memory.
type Hardware struct {
	BARs       []fpga.BAR
	Interrupts fpga.Interrupts
	Pinner     tegra.Pinner
	Memory     cudahost.Allocator
}

// A Card is one FPGA, which several cameras and outputs may share. Each has a DMA channel of its own.
type Card struct {
	Hardware

	mu   sync.Mutex
	xdma *xdma.Device
}

// NewCard returns the card. Its DMA engine is looked for when it is needed first.
func NewCard(h Hardware) *Card { return &Card{Hardware: h} }

// dma is the DMA engine. It is opened once: that stops all channels, and who fails later recovers his own.
func (c *Card) dma() (*xdma.Device, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.xdma == nil {
		d, err := xdma.Open(xdma.Config{BARs: c.BARs, Interrupts: c.Interrupts, Alloc: CoherentMemory(c.Pinner)})
		if err != nil {
			return nil, err
		}
		c.xdma = d
	}
	return c.xdma, nil
}

// channel returns the engine with a channel ready to be started: whatever has happened to it before. A fence that a
// revocation has put up is lifted, if no more memory was revoked while the channel was being reset.
func (c *Card) channel(ctx context.Context, dir fpga.Direction, index int) (*xdma.Device, error) {
	fencer, _ := c.Pinner.(tegra.Fencer)
	var generation uint64
	var fenced bool
	if fencer != nil {
		generation, fenced = fencer.Fenced()
	}
	device, err := c.dma()
	if err != nil {
		return nil, err
	}
	if err := device.Recover(ctx, dir, index); err != nil {
		return nil, err
	}
	if fenced {
		err = fencer.Resume(generation)
	}
	return device, err
}
