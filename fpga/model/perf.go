// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// Performance monitor of a channel (C0 to D0).
const (
	perfAuto    = 1 << 0
	perfClear   = 1 << 1
	perfRun     = 1 << 2
	counterBits = 42
	counterMax  = 1<<counterBits - 1
	counterFull = 1 << 16 // in the high register
)

// perfMonitor counts clock cycles and data beats while the channel runs and perfRun is set. Both counters stop at their
// maximum.
type perfMonitor struct {
	control uint32
	since   time.Time // start of the time not yet included in cycles; zero while not counting
	cycles  uint64
	beats   uint64
}

func (p *perfMonitor) counting() bool { return !p.since.IsZero() }

func (p *perfMonitor) write(v uint32, running bool, now time.Time) {
	p.stop(now)
	p.control = v & (perfAuto | perfRun)
	if v&perfClear != 0 {
		p.cycles, p.beats = 0, 0
	}
	if running && p.control&perfRun != 0 {
		p.since = now
	}
}

func (p *perfMonitor) start(now time.Time) {
	if p.control&perfAuto != 0 {
		p.cycles, p.beats = 0, 0
	}
	if p.control&perfRun != 0 {
		p.since = now
	}
}

func (p *perfMonitor) stop(now time.Time) {
	p.cycles = p.cyclesAt(now)
	p.since = time.Time{}
}

func (p *perfMonitor) descriptorStopped(now time.Time) {
	if p.control&perfAuto != 0 {
		p.stop(now)
	}
}

func (p *perfMonitor) count(n int) {
	if p.counting() {
		p.beats = min(counterMax, p.beats+uint64((n+BeatBytes-1)/BeatBytes))
	}
}

func (p *perfMonitor) cyclesAt(now time.Time) uint64 {
	if !p.counting() {
		return p.cycles
	}
	return min(counterMax, p.cycles+uint64(max(0, now.Sub(p.since)))*(ClockHz/1e6)/1000)
}

// read returns register i: cycle count low and high, data count low and high.
func (p *perfMonitor) read(i uint32, now time.Time) uint32 {
	v := p.beats
	if i < 2 {
		v = p.cyclesAt(now)
	}
	if i%2 == 0 {
		return uint32(v)
	}
	high := uint32(v >> 32)
	if v == counterMax {
		high |= counterFull
	}
	return high
}
