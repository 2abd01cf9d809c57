// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// A Design is a camera according to docs/fpga-interface.md that is implemented outside the model, such as a simulation
// of fpga/rtl. It comprises the camera block, sensor, frame memory and packetizer. It has its own clock, which only
// advances during calls. The device calls one method at a time.
type Design interface {
	fpga.Registers // the camera block

	// Reset resets the design, as the card's reset does.
	Reset()
	// Now returns the design's time since Reset.
	Now() time.Duration
	// Run advances the design's time by span, but at least by one cycle of its clock.
	Run(span time.Duration)
	// Channel sets the bits Run and Busy of the C2H channel's status ports.
	Channel(run, busy bool)
	// Read returns bytes of the stream that were already accepted, up to the end of a packet, and then accepts as many
	// more as p still has room for. No other call accepts any. The length of p is a multiple of BeatBytes. If eop is
	// true, the returned bytes end a packet.
	Read(p []byte) (n int, eop bool)
	// Waiting reports whether Read has bytes to return.
	Waiting() bool
	// Interrupt returns the level of the user interrupt.
	Interrupt() bool
}

const (
	designStep   = 250 * time.Microsecond // longest step of a design's time
	designAccess = 5 * time.Millisecond   // longest step before a register access
	designLate   = 50 * time.Millisecond  // how far a design's time may fall behind the device's clock
	designPiece  = 64 << 10               // maximum number of bytes that wait for the engine
	designReset  = 4                      // cycles within which a design notices that its channel has stopped
)

// designCamera connects a Design to its channel. Its fields are guarded by Device.mu.
type designCamera struct {
	d      *Device
	design Design
	host   *engine
	wake   chan struct{}

	began     time.Time // time of the device's clock to which the design's time 0 corresponds
	interrupt bool
	buffer    []byte
	rest      []byte // part of buffer that the engine has not taken
	eop       bool   // the end of rest is the end of a packet
	begun     bool   // a packet has begun
	packets   uint64 // packets begun since the device was created
}

func newDesignCamera(d *Device, design Design, host *engine) *designCamera {
	c := &designCamera{d: d, design: design, host: host, wake: make(chan struct{}, 1), buffer: make([]byte, designPiece)}
	c.reset()
	return c
}

func (c *designCamera) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// followClock makes the design's time follow the device's clock until ctx ends.
func (c *designCamera) followClock(ctx context.Context) {
	for ctx.Err() == nil {
		c.d.clock.Wait(c.step(), c.wake)
	}
}

// step runs the design for at most one step, and returns when the next one is due.
func (c *designCamera) step() time.Time {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	before := c.d.clock.Now()
	c.follow(before, designStep)
	after := c.d.clock.Now()
	if late := after.Sub(c.began) - c.design.Now(); late > designLate && after.After(before) {
		c.began = c.began.Add(late - designLate) // the machine is too slow, so the design's clock is slowed down
	}
	return c.began.Add(c.design.Now() + designStep)
}

// follow advances the design's time to now, but by no more than most.
func (c *designCamera) follow(now time.Time, most time.Duration) {
	c.design.Channel(c.host.control&bitRun != 0, c.host.busy || c.host.holdsBusy())
	if late := now.Sub(c.began) - c.design.Now(); late > 0 {
		c.design.Run(min(late, most))
	}
	c.notice()
}

// notice passes changes in the design's state on to the engine and the interrupts.
func (c *designCamera) notice() {
	if level := c.design.Interrupt(); level != c.interrupt {
		c.interrupt = level
		c.d.updateIRQ()
	}
	if c.design.Waiting() {
		c.host.kick()
	}
}

// readRegister implements cameraBlock.
func (c *designCamera) readRegister(off uint32) uint32 {
	c.follow(c.d.clock.Now(), designAccess)
	defer c.notice()
	return c.design.Read32(off)
}

// writeRegister implements cameraBlock.
func (c *designCamera) writeRegister(off, v uint32) {
	c.follow(c.d.clock.Now(), designAccess)
	defer c.notice()
	c.design.Write32(off, v)
}

// raises implements cameraBlock.
func (c *designCamera) raises() bool { return c.interrupt }

// next implements streamSource.
func (c *designCamera) next(n int) (p []byte, eop bool) {
	if room := min(n, len(c.buffer)) &^ (BeatBytes - 1); room > 0 && len(c.rest) == 0 {
		k := 0
		k, c.eop = c.design.Read(c.buffer[:room])
		c.rest = c.buffer[:k]
	}
	if len(c.rest) > 0 && !c.begun {
		c.begun = true
		c.host.beginUnit(c.packets, int(c.design.Read32(fpga.CamFrameBytes))+fpga.TrailerSize)
		c.packets++
	}
	n = min(n, len(c.rest))
	return c.rest[:n], c.eop && n == len(c.rest)
}

// load implements streamSource.
func (*designCamera) load() {}

// taken implements streamSource.
func (c *designCamera) taken(n int) {
	c.rest = c.rest[min(n, len(c.rest)):]
	if c.eop && len(c.rest) == 0 {
		c.eop, c.begun = false, false
	}
}

// detach implements streamSource.
func (c *designCamera) detach() {
	c.rest, c.eop, c.begun = nil, false, false
	c.design.Channel(false, false)
	for range designReset {
		c.design.Run(1)
	}
	c.notice()
}

// reset implements streamSource.
func (c *designCamera) reset() {
	c.rest, c.eop, c.begun, c.interrupt = nil, false, false, false
	c.design.Reset()
	c.began = c.d.clock.Now()
}
