// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

type channel struct {
	dev        *Device
	dir        fpga.Direction
	index      int
	base       uint32 // offset of the channel block
	sgdma      uint32 // offset of the channel's SGDMA block
	common     uint32 // the channel's bit in the common SGDMA block
	bit        uint32 // the channel's bit in the IRQ block
	line       *line  // nil in poll mode
	stream     bool
	identifier uint32

	used  atomic.Bool // by a transfer or ring
	dirty atomic.Bool // must be recovered before it is started
}

func (c *channel) read(off uint32) uint32     { return c.dev.regs.Read32(c.base + off) }
func (c *channel) write(off uint32, v uint32) { c.dev.regs.Write32(c.base+off, v) }
func (c *channel) sgWrite(off, v uint32)      { c.dev.regs.Write32(c.sgdma+off, v) }

// commonWrite writes the channel's bit to a register of the common SGDMA block.
func (c *channel) commonWrite(off uint32) { c.dev.regs.Write32(targetSGDMA<<12|off, c.common) }

func (c *channel) errorf(err error, format string, a ...any) error {
	return fmt.Errorf("%s channel %d: %w: %s", c.dir, c.index, err, fmt.Sprintf(format, a...))
}

// goneError returns the error for a register that read as all ones although it never has this value while the device is
// present. It marks the channel as dirty.
func (c *channel) goneError(while string) error {
	c.dirty.Store(true)
	return c.errorf(ErrGone, "while %s", while)
}

// claim makes the caller the channel's only user until release. It returns an error that wraps ErrBusy if there is a
// user already.
func (c *channel) claim() error {
	if c.used.Swap(true) {
		return c.errorf(ErrBusy, "another transfer or ring uses it")
	}
	return nil
}

func (c *channel) release() { c.used.Store(false) }

// ready recovers the channel if it is dirty.
func (c *channel) ready() error {
	if c.dirty.Load() {
		return c.recover()
	}
	return nil
}

// start starts the channel at the first descriptor: it clears Run and the status, unmasks interrupts (or masks them, in
// poll mode), writes the address and sets Run. poll is the bus address for the poll-mode write-back, if that is used.
func (c *channel) start(first uint64, adjacent int, poll uint64) error {
	c.write(regControlW1C, controlRun)
	switch status := c.read(regStatusClear); {
	case status == gone:
		return c.goneError("it was started")
	case status&statusBusy != 0:
		c.dirty.Store(true)
		return c.errorf(ErrBusy, "before it was started, status %#08x", status)
	}
	control := uint32(bitsLogged | controlRun) // PG195 requires desc_completed logging in poll mode
	if c.dev.cfg.Poll {
		control |= controlPoll
		c.write(regPollLow, uint32(poll))
		c.write(regPollHigh, uint32(poll>>32))
		c.write(regIntEnable, 0)
	} else {
		c.write(regIntEnable, bitsRaised)
		c.dev.enable(c, true)
	}
	c.sgWrite(regDescLow, uint32(first))
	c.sgWrite(regDescHigh, uint32(first>>32))
	c.sgWrite(regDescAdj, uint32(adjacent))
	c.write(regControl, control)
	return c.running("it was started") // the read also flushes the posted writes
}

// running checks that the channel still has its Run bit set: an engine that has stopped keeps it, while a reset clears
// it.
func (c *channel) running(while string) error {
	switch control := c.read(regControl); {
	case control == gone:
		return c.goneError(while)
	case control&controlRun == 0:
		c.dirty.Store(true)
		return c.errorf(ErrReset, "Run is no longer set in the control register (%#08x), while %s", control, while)
	}
	return nil
}

// stop clears Run, waits for at most bound until the channel is not busy, pulses the halt of descriptor fetching, and
// masks the interrupts. Halfway through the wait it halts fetching and calls unblock, if not nil, to end the current
// descriptor. Until stop has returned nil or an error that wraps ErrGone, memory known to the channel must not be
// reused.
func (c *channel) stop(bound time.Duration, unblock func()) error {
	c.write(regControlW1C, controlRun)
	err := c.idle(bound/2, bound)
	if errors.Is(err, ErrBusy) {
		c.commonWrite(regHaltW1S)
		if unblock != nil {
			unblock()
		}
		err = c.idle(bound-bound/2, bound)
	}
	if err != nil {
		c.dirty.Store(true)
		return err
	}
	c.write(regIntEnable, 0)
	c.dev.enable(c, false)
	c.read(regStatusClear)
	c.commonWrite(regHaltW1S)
	c.commonWrite(regHaltW1C)
	return nil
}

// idle waits until the channel is not busy. It returns an error that wraps ErrGone if the device is gone, and after
// wait one that wraps ErrBusy and states bound as the time since Run was cleared.
func (c *channel) idle(wait, bound time.Duration) error {
	deadline := time.Now().Add(wait)
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		status := c.read(regStatus)
		if status == gone {
			return c.goneError("it was stopped")
		}
		if status&statusBusy == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return c.errorf(ErrBusy, "%v after Run was cleared, status %#08x", bound, status)
		}
		time.Sleep(pause)
	}
}

// recover brings the channel from any state into one in which it can be started.
func (c *channel) recover() error {
	if id := c.read(regIdentifier); id != c.identifier {
		c.dirty.Store(true)
		return c.errorf(ErrGone, "its identifier reads %#08x and was %#08x", id, c.identifier)
	}
	if err := c.stop(stopBound, nil); err != nil {
		return err
	}
	c.write(regControl, 0)
	c.commonWrite(regCreditW1C)
	c.dev.writeVectors()
	c.dirty.Store(false)
	return nil
}

// rearm restores an interrupt that was lost: if its cause is still present after the status was read, unmasking raises
// it again. It also rewrites the vectors, in case the core was reset in the meantime.
func (c *channel) rearm() {
	if c.dev.cfg.Poll {
		return
	}
	c.dev.writeVectors()
	c.dev.enable(c, true)
	c.write(regIntEnable, 0)
	c.write(regIntEnable, bitsRaised)
}

// takeStatus reads and clears the status, which enables the next interrupt. It returns a *StatusError if an error bit
// was set, and an error that wraps ErrGone if the device is gone.
func (c *channel) takeStatus() (uint32, error) {
	status := c.read(regStatusClear)
	c.dev.unmask(c)
	switch {
	case status == gone:
		return 0, c.goneError("its status was read")
	case status&bitsFatal != 0:
		c.dirty.Store(true)
		return status, &StatusError{c.index, c.dir, status}
	}
	return status, nil
}

// counter reads a register whose value may legitimately be all ones: in that case the identifier shows whether the
// device is present.
func (c *channel) counter(off uint32) (uint32, error) {
	v := c.read(off)
	if v == gone && c.read(regIdentifier) == gone {
		return 0, c.goneError("a counter was read")
	}
	return v, nil
}

// completed returns the number of descriptors completed since Run was set.
func (c *channel) completed() (uint32, error) { return c.counter(regCompleted) }

// credits returns how many more descriptors the engine may fetch.
func (c *channel) credits() (int, error) {
	v := c.dev.regs.Read32(c.sgdma + regDescCredits)
	if v == gone {
		return 0, c.goneError("credits were granted")
	}
	return int(v & maxCredits), nil
}
