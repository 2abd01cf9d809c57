// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// A Design is a camera of docs/fpga-interface.md that is not the model's own: camera block, sensor, frame memory and packetizer, such
// as fpga/rtl in simulation. It has a clock of its own, which stands while nobody calls. The device calls one method at a time.
type Design interface {
	fpga.Registers // the camera block

	// Reset is the card's reset.
	Reset()
	// Now is the design's time since Reset.
	Now() time.Duration
	// Run lets so much time pass, at least a cycle of the design's clock.
	Run(span time.Duration)
	// Channel says from now on what the status ports of the C2H channel say: its bits Run and Busy.
	Channel(run, busy bool)
	// Read takes bytes of the stream that were accepted, up to a packet's end, and has as many accepted as p has room for
	// beyond them. None is accepted without that. The length of p is a multiple of BeatBytes.
	Read(p []byte) (n int, eop bool)
	// Waiting says that Read has bytes to take.
	Waiting() bool
	// Interrupt is the level of the user interrupt.
	Interrupt() bool
}

const (
	designStep   = 250 * time.Microsecond // of a design's time at once
	designAccess = 5 * time.Millisecond   // before a register is read or written
	designLate   = 50 * time.Millisecond  // most that a design's time is behind the device's clock
	designPiece  = 64 << 10               // bytes that wait for the engine
	designReset  = 4                      // cycles in which a design sees that its channel has stopped
)

// designCamera is a Design behind its channel. Its fields are guarded by Device.mu.
type designCamera struct {
	d      *Device
	design Design
	host   *engine
	wake   chan struct{}

	began     time.Time // by the device's clock, when the design's time was 0
	interrupt bool
	buffer    []byte
	rest      []byte // of buffer: what the engine has not taken
	eop       bool   // rest ends a packet
	begun     bool   // a packet
	packets   uint64 // begun since the device was made
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

// run has the design's time follow the device's clock until ctx ends.
func (c *designCamera) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.d.clock.Wait(c.step(), c.wake)
	}
}

// step lets the design run for a step at most, and returns when the next one is due.
func (c *designCamera) step() time.Time {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	before := c.d.clock.Now()
	c.follow(before, designStep)
	after := c.d.clock.Now()
	if late := after.Sub(c.began) - c.design.Now(); late > designLate && after.After(before) {
		c.began = c.began.Add(late - designLate) // the machine is too slow: the design's clock is
	}
	return c.began.Add(c.design.Now() + designStep)
}

// follow brings the design's time up to now, by so much at most.
func (c *designCamera) follow(now time.Time, most time.Duration) {
	c.design.Channel(c.host.control&bitRun != 0, c.host.busy || c.host.holdsBusy())
	if late := now.Sub(c.began) - c.design.Now(); late > 0 {
		c.design.Run(min(late, most))
	}
	c.notice()
}

// notice tells engine and interrupts what has become of the design.
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
		c.host.begin(c.packets, int(c.design.Read32(fpga.CamFrameBytes))+fpga.TrailerSize)
		c.packets++
	}
	n = min(n, len(c.rest))
	return c.rest[:n], c.eop && n == len(c.rest)
}

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
