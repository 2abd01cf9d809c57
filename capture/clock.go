// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync"
	"time"
)

// A Clock maps the FPGA's timestamp counter to this machine's time. It keeps paired readings of both clocks: the newest
// is the anchor, the slope over all of them the counter's rate. Time on this machine is Go's: wall clock and
// monotonic reading together, so differences of mapped times survive steps of the wall clock, and the wall clock
// itself is followed at the next reading.
type Clock struct {
	mu    sync.Mutex
	pairs [clockPairs]pair // the oldest first
	n     int
	rate  float64 // seconds of this machine per counter second
	steps int
}

// pair is one reading of both clocks.
type pair struct {
	host time.Time
	fpga uint64        // ns
	half time.Duration // the counter was read within this of host
}

const (
	clockPairs = 32          // with one reading a second, the window over which the rate is measured
	pairEvery  = time.Second // between readings
	pairTries  = 8           // the quickest of them is kept
	// worstCrystal is the rate error that is reckoned with before there are two readings, and the floor of the
	// uncertainty afterwards: crystals are specified to ±50 or ±100 ppm and wander by less than 1 ppm in a minute.
	worstCrystal = 100e-6
	wander       = 1e-6
	// stepSlack is how far beyond its uncertainty a reading may be off before it counts as a step.
	stepSlack = 200 * time.Microsecond
)

// Update takes a new pair of readings of counter, in ns. It says whether the counter or the machine's clock has made a
// step, after which the measurement of the rate restarts.
func (c *Clock) Update(counter func() uint64) (stepped bool) {
	best := pair{half: 1<<63 - 1}
	for range pairTries {
		before := time.Now()
		ticks := counter()
		if half := time.Since(before)/2 + 1; half < best.half {
			best = pair{before.Add(half), ticks, half}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		expected, uncertainty := c.at(best.fpga)
		if off := best.host.Sub(expected).Abs(); off > uncertainty+best.half+stepSlack {
			c.n, stepped = 0, true
			c.steps++
		}
	}
	c.add(best)
	return stepped
}

func (c *Clock) add(p pair) {
	if c.n == clockPairs {
		copy(c.pairs[:], c.pairs[1:])
		c.n--
	}
	c.pairs[c.n] = p
	c.n++
	c.rate = 1
	if oldest := c.pairs[0]; c.n > 1 && p.fpga > oldest.fpga {
		c.rate = float64(p.host.Sub(oldest.host)) / float64(p.fpga-oldest.fpga)
	}
}

// due says whether it is time for another reading.
func (c *Clock) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n == 0 || now.Sub(c.pairs[c.n-1].host) >= pairEvery
}

// forget restarts the measurement: the counter has been reset.
func (c *Clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = 0
}

// At is the time on this machine at which the counter stood at ticks ns, to plus or minus uncertainty. Before the first
// Update it is the zero Time.
func (c *Clock) At(ticks uint64) (t time.Time, uncertainty time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return time.Time{}, 0
	}
	return c.at(ticks)
}

func (c *Clock) at(ticks uint64) (time.Time, time.Duration) {
	anchor, oldest := c.pairs[c.n-1], c.pairs[0]
	since := float64(int64(ticks - anchor.fpga))
	rateError := worstCrystal
	if span := anchor.host.Sub(oldest.host); c.n > 1 && span > 0 {
		rateError = wander + float64(anchor.half+oldest.half)/float64(span)
	}
	t := anchor.host.Add(time.Duration(since * c.rate))
	return t, anchor.half + time.Duration(max(since, -since)*rateError) + 1
}

// Drift is the counter's rate error against this machine in parts per million: positive when the counter is fast.
func (c *Clock) Drift() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n < 2 {
		return 0
	}
	return (1/c.rate - 1) * 1e6
}

// Steps is how often a clock has made a step.
func (c *Clock) Steps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps
}
