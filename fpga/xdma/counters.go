// SPDX-License-Identifier: Apache-2.0

package xdma

// Counters are a channel's performance counters (PG195, channel performance monitor). They have 42 bits: cycles of
// 250 MHz fill them in 4.9 hours.
type Counters struct {
	Cycles uint64 // of the data path's clock, while the channel ran
	Bytes  uint64 // data beats times the width of the data path: a partial beat counts whole
	Full   bool   // a counter has stopped at its largest value
}

// clearCounters arms the counters for one run: they stop with Run, or at a descriptor with the Stop bit.
func (c *channel) clearCounters() {
	c.write(regPerfControl, perfClear)
	c.write(regPerfControl, perfRun|perfAuto)
}

func (c *channel) counters() (Counters, error) {
	cycles, full1, err := c.counter42(regPerfCyclesLo, regPerfCyclesHi)
	if err != nil {
		return Counters{}, err
	}
	beats, full2, err := c.counter42(regPerfDataLo, regPerfDataHi)
	if err != nil {
		return Counters{}, err
	}
	return Counters{Cycles: cycles, Bytes: beats * uint64(c.dev.width), Full: full1 || full2}, nil
}

// counter42 reads the two halves of a counter that may be running: the upper half must be the same before and after.
func (c *channel) counter42(low, high uint32) (v uint64, full bool, err error) {
	const most = 4 // it changes every 17 s at 250 MHz: twice in a row is no counter
	for range most {
		before := c.read(high)
		lo, err := c.counter(low)
		if err != nil {
			return 0, false, err
		}
		hi := c.read(high)
		switch {
		case hi == gone:
			return 0, false, c.goneError("its performance counters were read")
		case hi == before:
			return uint64(hi&(1<<10-1))<<32 | uint64(lo), hi&perfFull != 0, nil
		}
	}
	return 0, false, c.errorf(ErrLost, "the performance counter at %#x keeps changing while it is read", c.base+high)
}

// Stats count what a ring did since it was made.
type Stats struct {
	Frames      uint64 // completed
	Descriptors uint64 // of these frames
	Starts      uint64
	Interrupts  uint64 // in poll mode: changes of the write-back
	Spurious    uint64 // interrupts that found nothing logged: duplicate, late, or overtaken by a tick
	Missed      uint64 // frames that a tick of the watchdog found: their interrupt was lost or is late
	Doubted     uint64 // write-backs that the descriptor counter did not confirm at once: stale, or ahead of it
	Late        uint64 // frames whose write-backs had not come when the counter said complete
	Credits     uint64 // granted
	CreditsLost uint64 // of those written, how many did not arrive; they were written again
}
