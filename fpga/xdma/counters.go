// SPDX-License-Identifier: Apache-2.0

package xdma

// Counters are a channel's performance counters (PG195, channel performance monitor). They have 42 bits: at 250 MHz,
// the cycle counter reaches its maximum after 4.9 hours.
type Counters struct {
	Cycles uint64 // of the data path's clock, while the channel ran
	Bytes  uint64 // data beats times the width of the data path: a partial beat counts as a whole one
	Full   bool   // a counter has stopped at its maximum
}

// clearCounters clears the counters and arms them: they count while the channel's Run bit is set, until a descriptor
// with the Stop bit is completed.
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

// counter42 reads the two halves of a counter that may be running, until the upper half is the same before and after
// the lower one was read, but at most four times.
func (c *channel) counter42(low, high uint32) (v uint64, full bool, err error) {
	const most = 4 // it changes every 17 s at 250 MHz: if it changes twice in a row, it is not a counter
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

// Stats are counters since the ring was created.
type Stats struct {
	Frames      uint64 // completed
	Descriptors uint64 // of these frames
	Starts      uint64
	Interrupts  uint64 // interrupts; in poll mode, changes of the write-back
	Spurious    uint64 // interrupts without a logged cause: duplicate, late, or overtaken by a tick
	Missed      uint64 // frames found by a tick of the watchdog, because their interrupt was lost or late
	Doubted     uint64 // write-backs that were wrong at first, or that the descriptor counter did not confirm at first
	Late        uint64 // frames whose write-backs were missing although the descriptor counter included them
	Credits     uint64 // granted
	CreditsLost uint64 // written but not received; they were written again
}
