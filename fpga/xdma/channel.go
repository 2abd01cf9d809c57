package xdma

import (
	"context"
	"fmt"
	"time"

	"tegracast/fpga"
)

// channel is one DMA channel's registers.
type channel struct {
	dev     *Device
	dir     fpga.Direction
	index   int
	base    uint32 // of the channel block
	sgdma   uint32 // of the channel's SGDMA block
	common  uint32 // the channel's bit in the common SGDMA block
	bit     uint32 // the channel's bit in the IRQ block
	vector  int
	stream  bool
	version int
}

func (c *channel) read(off uint32) uint32     { return c.dev.regs.Read32(c.base + off) }
func (c *channel) write(off uint32, v uint32) { c.dev.regs.Write32(c.base+off, v) }
func (c *channel) sgWrite(off, v uint32)      { c.dev.regs.Write32(c.sgdma+off, v) }

func (c *channel) errorf(err error, format string, a ...any) error {
	return fmt.Errorf("%s channel %d: %w: %s", c.dir, c.index, err, fmt.Sprintf(format, a...))
}

// start arms the channel at the first descriptor: clear Run, clear the status, unmask, give the address, set Run.
func (c *channel) start(first uint64, adjacent int) error {
	c.write(regControlW1C, controlRun)
	c.read(regStatusClear)
	c.write(regIntEnable, bitsFatal|bitDescCompleted|bitDescStopped)
	c.dev.regs.Write32(targetIRQ<<12|regChannelIntEnableW1S, c.bit)
	c.sgWrite(regDescLow, uint32(first))
	c.sgWrite(regDescHigh, uint32(first>>32))
	c.sgWrite(regDescAdj, uint32(adjacent))
	c.write(regControl, bitsLogged|controlRun)
	if c.read(regControl) == gone { // the read also pushes the posted writes out
		return c.errorf(ErrGone, "while it was started")
	}
	return nil
}

// stop clears Run, waits until the channel is not busy, pulses the descriptor fetch's halt, and masks the
// interrupts. Until it has returned nil, memory that the channel knows must not be reused.
func (c *channel) stop() error {
	c.write(regControlW1C, controlRun)
	deadline := time.Now().Add(stopBound)
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		status := c.read(regStatus)
		if status == gone {
			return c.errorf(ErrGone, "while it was stopped")
		}
		if status&statusBusy == 0 {
			break
		}
		if time.Now().After(deadline) {
			return c.errorf(ErrBusy, "%v after Run was cleared, status %#08x", stopBound, status)
		}
		time.Sleep(pause)
	}
	c.write(regIntEnable, 0)
	c.dev.regs.Write32(targetIRQ<<12|regChannelIntEnableW1C, c.bit)
	c.read(regStatusClear)
	c.dev.regs.Write32(targetSGDMA<<12|regHaltW1S, c.common)
	c.dev.regs.Write32(targetSGDMA<<12|regHaltW1C, c.common)
	return nil
}

// wait waits for the channel's interrupt and takes its status, which lets the next interrupt come.
func (c *channel) wait(ctx context.Context) (uint32, error) {
	if err := c.dev.irq.Wait(ctx, c.vector); err != nil {
		return 0, err
	}
	return c.takeStatus()
}

func (c *channel) takeStatus() (uint32, error) {
	status := c.read(regStatusClear)
	switch {
	case status == gone:
		return status, c.errorf(ErrGone, "while its status was read")
	case status&bitsFatal != 0:
		return status, &StatusError{c.index, c.dir, status}
	}
	return status, nil
}

// Counters are a channel's performance counters (PG195, channel performance monitor).
type Counters struct {
	Cycles uint64 // of the data path's clock, while the channel ran
	Bytes  uint64 // data beats times the width of the data path: a partial beat counts whole
}

// clearCounters arms the counters for one run: they stop at the descriptor with the Stop bit.
func (c *channel) clearCounters() {
	c.write(regPerfControl, perfClear)
	c.write(regPerfControl, perfRun|perfAuto)
}

func (c *channel) counters() Counters {
	const high = 1<<10 - 1 // 42 bits in all
	cycles := uint64(c.read(regPerfCyclesHi)&high)<<32 | uint64(c.read(regPerfCyclesLo))
	beats := uint64(c.read(regPerfDataHi)&high)<<32 | uint64(c.read(regPerfDataLo))
	return Counters{Cycles: cycles, Bytes: beats * uint64(c.dev.width)}
}
