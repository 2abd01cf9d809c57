// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// Coherent is memory of which CPU and device have the same view. Close frees it.
type Coherent struct {
	fpga.Memory
	Close func() error
}

// Config configures a Device.
type Config struct {
	BARs       []fpga.BAR
	Interrupts fpga.Interrupts
	// Alloc allocates memory for descriptors and write-backs: at least size bytes in one segment, 4 KiB aligned.
	Alloc func(size int) (Coherent, error)

	// Poll makes channels announce completions by a write-back to memory, which is polled with sleeps in between,
	// instead of by interrupts (PG195, poll mode). Poll mode is always used if Interrupts is nil or has no vector.
	Poll bool
	// Watchdog is the interval at which registers are checked without any announcement; 0: 50 ms.
	Watchdog time.Duration
}

// stopBound is the longest time that a channel may stay busy after Run was cleared. The current descriptor is completed
// first (PG195, channel control); except on the slowest links, even 256 MiB take less.
const stopBound = 2 * time.Second

// A Device is an XDMA core. Its channels work independently of each other; each channel serves one caller at a time.
type Device struct {
	cfg   Config
	regs  fpga.Registers
	bar   int // index of the BAR with the registers
	width int // of the data path, in bytes
	h2c   []*channel
	c2h   []*channel

	lines []*line // by vector; none in poll mode

	seen [userInterrupts]atomic.Uint64 // by user interrupt: raises of its shared line that WaitUser has seen

	mu      sync.Mutex
	user    uint32 // enabled user interrupts
	enabled uint32 // channels with enabled interrupts
}

// A ChannelInfo describes one channel.
type ChannelInfo struct {
	Direction fpga.Direction
	Channel   int
	Stream    bool
	Version   int
}

// Open finds the BAR with the DMA registers by the identifiers of its IRQ and config blocks, and the channels by their
// own identifiers. It writes the interrupt vectors: a channel gets the vector that corresponds to its bit in the IRQ
// block, and the user interrupts follow. If there are fewer vectors, they are shared. Open leaves the channels as they
// are. Each is recovered on first use, whatever state it was left in.
func Open(cfg Config) (*Device, error) {
	if cfg.Watchdog <= 0 {
		cfg.Watchdog = 50 * time.Millisecond
	}
	vectors := 0
	if cfg.Interrupts != nil && !cfg.Poll {
		vectors = cfg.Interrupts.Vectors()
	}
	cfg.Poll = vectors == 0
	for _, bar := range cfg.BARs {
		if bar.Size < barSize || bar.Registers.Read32(targetIRQ<<12)>>16 != identifierIRQ ||
			bar.Registers.Read32(targetConfig<<12)>>16 != identifierConf {
			continue
		}
		d := &Device{cfg: cfg, regs: bar.Registers, bar: bar.Index}
		if err := d.open(vectors); err != nil {
			return nil, err
		}
		return d, nil
	}
	return nil, fmt.Errorf("%w: looked for %#x and %#x at offsets 0x2000 and 0x3000 of %d BARs; "+
		"is the FPGA's design loaded, and has it AMD's XDMA with a DMA BAR?",
		ErrNotFound, identifierIRQ, identifierConf, len(cfg.BARs))
}

func (d *Device) open(vectors int) error {
	width := d.regs.Read32(targetConfig<<12 | regDataWidth)
	if width == gone {
		return fmt.Errorf("%w: while it was opened", ErrGone)
	}
	d.width = 8 << (width & 7)
	d.h2c = d.find(fpga.H2C, targetH2C, identifierH2C)
	d.c2h = d.find(fpga.C2H, targetC2H, identifierC2H)
	if len(d.h2c)+len(d.c2h) == 0 {
		return fmt.Errorf("%w: the core has no channel", ErrChannel)
	}
	for i, c := range d.channels() {
		c.bit = uint32(1) << i // channel bits: first all of H2C, then all of C2H
	}
	d.share(vectors)
	d.writeVectors()
	return nil
}

// share assigns one of the vectors, if there are any, to every channel and user interrupt.
func (d *Device) share(vectors int) {
	if vectors == 0 {
		return
	}
	channels := d.channels()
	d.lines = make([]*line, min(vectors, len(channels)+userInterrupts))
	for i := range d.lines {
		d.lines[i] = newLine(d, i)
	}
	for i, c := range channels {
		c.line = d.lineOf(i)
		c.line.add(c.bit, 0)
	}
	for i := range userInterrupts {
		d.userLine(i).add(0, 1<<i)
	}
}

// lineOf returns the line of source i: channels in the order of their bits, then user interrupts. Sources share lines
// if there are fewer vectors than sources.
func (d *Device) lineOf(i int) *line { return d.lines[i%len(d.lines)] }

func (d *Device) userLine(i int) *line { return d.lineOf(len(d.h2c) + len(d.c2h) + i) }

func (d *Device) find(dir fpga.Direction, target, identifier uint32) (found []*channel) {
	for i := range uint32(maxChannels) {
		base := target<<12 | i<<8
		id := d.regs.Read32(base)
		if id>>16 != identifier || id>>8&0xf != i {
			break
		}
		c := &channel{
			dev: d, dir: dir, index: int(i), base: base, sgdma: base + targetH2CSGDMA<<12,
			stream: id>>15&1 == 1, identifier: id,
			common: uint32(1) << (i + 16*uint32(dir)),
		}
		c.dirty.Store(true)
		found = append(found, c)
	}
	return found
}

func (d *Device) channels() []*channel { return append(append([]*channel{}, d.h2c...), d.c2h...) }

// writeVectors writes the registers that all channels share and that a reset of the core clears: the interrupt vectors
// and the enabled user interrupts. mu must not be held.
func (d *Device) writeVectors() {
	var vectors [2 + userInterrupts/4]uint32
	if !d.cfg.Poll {
		for i := range len(d.h2c) + len(d.c2h) {
			vectors[i/4] |= uint32(d.lineOf(i).vector) << (8 * (i % 4))
		}
		for i := range userInterrupts {
			vectors[2+i/4] |= uint32(d.userLine(i).vector) << (8 * (i % 4))
		}
	}
	for i, v := range vectors {
		at := uint32(regChannelVectors + 4*i)
		if i >= 2 {
			at = uint32(regUserVectors + 4*(i-2))
		}
		d.regs.Write32(targetIRQ<<12|at, v)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.regs.Write32(targetIRQ<<12|regUserIntEnableW1S, d.user)
}

func (d *Device) enable(c *channel, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	register := uint32(regChannelIntEnableW1S)
	d.enabled |= c.bit
	if !on {
		register = regChannelIntEnableW1C
		d.enabled &^= c.bit
	}
	d.regs.Write32(targetIRQ<<12|register, c.bit)
}

// mask masks all sources of a shared line until each has been checked: while the line is raised for one source, it
// cannot rise for another.
func (d *Device) mask(l *line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.regs.Write32(targetIRQ<<12|regChannelIntEnableW1C, l.channels&d.enabled)
	d.regs.Write32(targetIRQ<<12|regUserIntEnableW1C, l.users&d.user)
}

// unmask enables a channel's interrupts again after it has been checked, if its line is shared.
func (d *Device) unmask(c *channel) {
	if c.line == nil || !c.line.shared {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.regs.Write32(targetIRQ<<12|regChannelIntEnableW1S, c.bit&d.enabled)
}

// unmaskUser is unmask for a user interrupt.
func (d *Device) unmaskUser(i int) {
	if !d.userLine(i).shared {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.regs.Write32(targetIRQ<<12|regUserIntEnableW1S, 1<<i&d.user)
}

// Channels lists the channels, H2C first.
func (d *Device) Channels() (list []ChannelInfo) {
	for _, c := range d.channels() {
		list = append(list, ChannelInfo{c.dir, c.index, c.stream, int(c.identifier & 0xff)})
	}
	return list
}

// DataPathWidth returns the width of the data path in bytes.
func (d *Device) DataPathWidth() int { return d.width }

// Recover brings an unused channel back into a state in which it can be started: after any of its errors, after the
// device was gone for a while, or after a reset of the core. It also rewrites the registers that a reset clears and the
// channel shares with others; this does not disturb the others. The error wraps ErrBusy if the channel is in use or
// does not stop, in which case memory known to it must stay mapped, ErrGone if the device is missing or a different
// one, ErrChannel if there is no such channel, or ctx's error.
//
// A channel that has failed is recovered before its next start in any case; Recover is for callers that need to know
// earlier.
func (d *Device) Recover(ctx context.Context, dir fpga.Direction, index int) error {
	c, err := d.at(dir, index)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.claim(); err != nil {
		return err
	}
	defer c.release()
	return c.recover()
}

func (d *Device) at(dir fpga.Direction, index int) (*channel, error) {
	list := d.h2c
	if dir == fpga.C2H {
		list = d.c2h
	}
	if index < 0 || index >= len(list) {
		return nil, fmt.Errorf("%w: %s %d, the core has %d", ErrChannel, dir, index, len(list))
	}
	return list[index], nil
}

func (d *Device) channel(dir fpga.Direction, index int, stream bool) (*channel, error) {
	c, err := d.at(dir, index)
	if err != nil || c.stream == stream {
		return c, err
	}
	kind := map[bool]string{true: "a stream", false: "memory-mapped"}
	return nil, fmt.Errorf("%w: %s channel %d is %s, and %s one is needed", ErrChannel, dir, index, kind[!stream], kind[stream])
}
