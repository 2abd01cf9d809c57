// Package xdma drives AMD's DMA/Bridge Subsystem for PCI Express in DMA mode (XDMA, PG195) from user space:
// memory-mapped transfers both ways and a ring of frames on a C2H stream.
//
// Descriptor lists are made once, in memory that the device reads; per transfer or frame a few registers are written.
package xdma

import (
	"fmt"
	"time"

	"tegracast/fpga"
)

// Coherent is memory that CPU and device see alike; Close frees it.
type Coherent struct {
	fpga.Memory
	Close func() error
}

// Config is what a device is opened with.
type Config struct {
	BARs       []fpga.BAR
	Interrupts fpga.Interrupts
	// Alloc makes memory for descriptors and write-backs: at least size bytes in one segment, 4 KiB aligned.
	Alloc func(size int) (Coherent, error)
}

// A Device is an XDMA core. Its channels work independently of each other; one channel serves one caller at a time.
type Device struct {
	regs  fpga.Registers
	irq   fpga.Interrupts
	alloc func(size int) (Coherent, error)
	width int // of the data path, bytes
	h2c   []*channel
	c2h   []*channel
}

// A ChannelInfo describes one channel.
type ChannelInfo struct {
	Direction fpga.Direction
	Channel   int
	Stream    bool
	Version   int
}

// Open finds the BAR with the DMA registers by the identifiers of its IRQ and config blocks, and the channels by
// theirs. Every channel is stopped, and gets the interrupt vector of its bit in the IRQ block.
func Open(cfg Config) (*Device, error) {
	for _, bar := range cfg.BARs {
		if bar.Size < barSize || bar.Registers.Read32(targetIRQ<<12)>>16 != identifierIRQ ||
			bar.Registers.Read32(targetConfig<<12)>>16 != identifierConf {
			continue
		}
		d := &Device{regs: bar.Registers, irq: cfg.Interrupts, alloc: cfg.Alloc}
		return d, d.open()
	}
	return nil, fmt.Errorf("%w: looked for %#x and %#x at offsets 0x2000 and 0x3000 of %d BARs", ErrNotFound, identifierIRQ, identifierConf, len(cfg.BARs))
}

func (d *Device) open() error {
	d.width = 8 << (d.regs.Read32(targetConfig<<12|regDataWidth) & 7)
	d.h2c = d.find(fpga.H2C, targetH2C, identifierH2C)
	d.c2h = d.find(fpga.C2H, targetC2H, identifierC2H)
	if len(d.h2c)+len(d.c2h) == 0 {
		return fmt.Errorf("%w: the core has no channel", ErrChannel)
	}
	var vectors [2]uint32
	for i, c := range append(append([]*channel{}, d.h2c...), d.c2h...) {
		c.bit, c.vector = uint32(1)<<i, i // channel bits pack all H2C, then all C2H
		vectors[i/4] |= uint32(i) << (8 * (i % 4))
		if err := c.stop(); err != nil {
			return err
		}
	}
	for i, v := range vectors {
		d.regs.Write32(targetIRQ<<12|regChannelVectors+uint32(4*i), v)
	}
	return nil
}

func (d *Device) find(dir fpga.Direction, target, identifier uint32) (found []*channel) {
	for i := range uint32(maxChannels) {
		base := target<<12 | i<<8
		id := d.regs.Read32(base)
		if id>>16 != identifier || id>>8&0xf != i {
			break
		}
		found = append(found, &channel{
			dev: d, dir: dir, index: int(i), base: base, sgdma: base + targetH2CSGDMA<<12,
			stream: id>>15&1 == 1, version: int(id & 0xff),
			common: uint32(1) << (i + 16*uint32(dir)),
		})
	}
	return found
}

// Channels lists the channels, H2C first.
func (d *Device) Channels() (list []ChannelInfo) {
	for _, c := range append(append([]*channel{}, d.h2c...), d.c2h...) {
		list = append(list, ChannelInfo{c.dir, c.index, c.stream, c.version})
	}
	return list
}

// DataPathWidth is the width of the data path in bytes.
func (d *Device) DataPathWidth() int { return d.width }

func (d *Device) channel(dir fpga.Direction, index int, stream bool) (*channel, error) {
	list := d.h2c
	if dir == fpga.C2H {
		list = d.c2h
	}
	if index < 0 || index >= len(list) {
		return nil, fmt.Errorf("%w: %s %d, the core has %d", ErrChannel, dir, index, len(list))
	}
	if c := list[index]; c.stream == stream {
		return c, nil
	}
	kind := map[bool]string{true: "a stream", false: "memory-mapped"}
	return nil, fmt.Errorf("%w: %s channel %d is %s, and %s one is needed", ErrChannel, dir, index, kind[!stream], kind[stream])
}

// stopBound is how long a channel may stay busy after Run was cleared: the current descriptor completes first
// (PG195, channel control), and 256 MiB take less than this on the slowest link.
const stopBound = 2 * time.Second
