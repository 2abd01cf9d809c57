// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync"
	"time"
)

// A Clock maps the FPGA's timestamp counter to this machine's time. It keeps paired readings of both clocks: the newest
// pair is the anchor, and the slope over all pairs is the counter's rate. Times on this machine are Go times, which
// contain both wall clock and monotonic readings. Differences of mapped times are therefore not affected by steps of
// the wall clock, and mapped times follow the wall clock from the next reading on.
type Clock struct {
	mu    sync.Mutex
	pairs [clockPairs]pair // oldest first
	n     int
	rate  float64 // seconds of this machine per second of the counter
	steps int
}

// pair is one reading of both clocks.
type pair struct {
	host time.Time
	fpga uint64        // ns
	half time.Duration // the counter was read at most this long before or after host
}

const (
	clockPairs = 32          // number of pairs kept, over which the rate is measured: about as many seconds
	pairEvery  = time.Second // time between pairs
	pairTries  = 8           // readings per pair, of which the quickest is used
	// worstCrystal is the assumed rate error until there are two pairs; wander is the minimum rate error afterwards.
	// Crystals are specified to ±50 or ±100 ppm and wander by less than 1 ppm within a minute.
	worstCrystal = 100e-6
	wander       = 1e-6
	// stepSlack is the deviation of a reading, beyond its uncertainty, above which it counts as a step.
	stepSlack = 200 * time.Microsecond
)

// Update adds a pair: a reading of counter, which returns ns, and this machine's time. It reports whether the counter
// has stepped relative to this machine's monotonic clock; the measurement of the rate then restarts.
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

// due reports whether it is time for another reading.
func (c *Clock) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n == 0 || now.Sub(c.pairs[c.n-1].host) >= pairEvery
}

// forget discards all pairs, because the counter may have been reset.
func (c *Clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = 0
}

// At returns the time on this machine at which the counter had the value ticks, in ns, and the uncertainty (plus or
// minus). While there is no pair, as before the first Update, it returns the zero Time.
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

// Drift returns the counter's rate error relative to this machine in parts per million, or 0 if there are fewer than
// two pairs. It is positive if the counter is fast.
func (c *Clock) Drift() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n < 2 {
		return 0
	}
	return (1/c.rate - 1) * 1e6
}

// Steps returns the number of clock steps detected.
func (c *Clock) Steps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps
}
