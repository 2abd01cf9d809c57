// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"sync"
	"time"
)

// A Clock maps the timestamp counter of a card to this machine's time. It keeps paired readings of both clocks: the
// newest pair is the anchor, and the slope over all pairs is the counter's rate. Times on this machine are Go times,
// which contain both wall clock and monotonic readings. Differences of mapped times are therefore not affected by steps
// of the wall clock, and mapped times follow the wall clock from the next reading on.
//
// If the counter follows another clock (Discipline), a Clock also knows each change that the host has made to it, and
// maps older readings as if the counter had always run as it does now.
type Clock struct {
	reading sync.Mutex // held while the counter is read or changed, because its two registers latch; locked before mu

	mu      sync.Mutex
	pairs   [clockPairs]pair // oldest first
	n       int
	rate    float64 // seconds of this machine per second of the counter
	steps   int
	changes [clockChanges]change // oldest first
	changed int
	steered bool          // the host has changed the counter, whose rate may then be off by steering
	utc     bool          // the counter has the time of the clock that it follows
	ahead   time.Duration // of that clock's scale before UTC
}

// pair is one reading of both clocks.
type pair struct {
	host time.Time
	fpga uint64        // ns
	half time.Duration // the counter was read at most this long before or after host
}

// change is a change of the counter by the host: where it read at most upto, it would now read by more, and it has run
// faster by the share rate since.
type change struct {
	upto uint64 // ns, before the change
	by   uint64 // ns, modulo 2^64
	rate float64
}

// step returns the value that the counter would have had in place of ticks without its step.
func (a change) step(ticks uint64) uint64 {
	if ticks > a.upto {
		return ticks
	}
	return ticks + a.by
}

// apply returns the value that the counter would have had in place of ticks if it had always run as after the change.
func (a change) apply(ticks uint64) uint64 {
	if ticks > a.upto {
		return ticks
	}
	return ticks + a.by - uint64(int64(float64(a.upto-ticks)*a.rate))
}

// gone is the value of a missing device's counter.
const gone = math.MaxUint64

const (
	clockPairs   = 32          // number of pairs kept, over which the rate is measured: about as many seconds
	clockChanges = 16          // number of changes kept: no frame is older than so many seconds
	pairEvery    = time.Second // time between pairs
	pairTries    = 8           // readings per pair, of which the quickest is used
	// worstCrystal is the assumed rate error until there are two pairs; wander is the minimum rate error afterwards.
	// Crystals are specified to ±50 or ±100 ppm and wander by less than 1 ppm within a minute.
	worstCrystal = 100e-6
	wander       = 1e-6
	// steering is the most by which TIME_RATE changes the rate (docs/fpga-interface.md, "Clocking").
	steering = 1e-3
	// stepSlack is the deviation of a reading, beyond its uncertainty, above which it counts as a step.
	stepSlack = 200 * time.Microsecond
)

// Update adds a pair: a reading of counter, which returns ns, and this machine's time. It reports whether the counter
// has stepped relative to this machine's monotonic clock; the measurement of the rate then restarts. With fresh it
// restarts in any case, because the counter may have been reset. The reading of a missing device is left out.
func (c *Clock) Update(counter func() uint64, fresh bool) (stepped bool) {
	c.reading.Lock()
	defer c.reading.Unlock()
	_, stepped = c.update(counter, fresh)
	return stepped
}

// update is Update, and returns the pair. c.reading must be held.
func (c *Clock) update(counter func() uint64, fresh bool) (best pair, stepped bool) {
	best.half = 1<<63 - 1
	for range pairTries {
		before := time.Now()
		ticks := counter()
		if half := time.Since(before)/2 + 1; half < best.half {
			best = pair{before.Add(half), ticks, half}
		}
	}
	if best.fpga == gone {
		return best, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 && !fresh {
		expected, uncertainty := c.at(best.fpga)
		if off := best.host.Sub(expected).Abs(); off > uncertainty+best.half+stepSlack {
			stepped = true
			c.steps++
		}
	}
	if stepped || fresh {
		c.n, c.changed, c.utc = 0, 0, false
	}
	c.add(best)
	return best, stepped
}

func (c *Clock) add(p pair) {
	if c.n == clockPairs {
		copy(c.pairs[:], c.pairs[1:])
		c.n--
	}
	c.pairs[c.n] = p
	c.n++
	c.measure()
}

func (c *Clock) measure() {
	c.rate = 1
	if oldest, newest := c.pairs[0], c.pairs[c.n-1]; c.n > 1 && newest.fpga > oldest.fpga {
		c.rate = float64(newest.host.Sub(oldest.host)) / float64(newest.fpga-oldest.fpga)
	}
}

// alter changes the counter by calling do, which returns what has changed. No time is mapped meanwhile. c.reading must
// be held.
func (c *Clock) alter(do func() change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := do()
	c.steered = true
	if c.changed == clockChanges {
		copy(c.changes[:], c.changes[1:])
		c.changed--
	}
	c.changes[c.changed] = a
	c.changed++
	for i := range c.n {
		c.pairs[i].fpga = a.apply(c.pairs[i].fpga)
	}
	if int64(a.by) < 0 { // no camera runs, and what it would read next looks as if it was before the step
		c.changed = 0
	}
	c.measure()
}

// isSet reports whether the counter has the time of the clock that it follows, and has not jumped since.
func (c *Clock) isSet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.utc
}

// due reports whether it is time for another reading.
func (c *Clock) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n == 0 || now.Sub(c.pairs[c.n-1].host) >= pairEvery
}

// At returns the time on this machine at which the counter had the value ticks, in ns, and the uncertainty (plus or
// minus). While there is no pair, as before the first Update, it returns the zero Time.
func (c *Clock) At(ticks uint64) (t time.Time, uncertainty time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return time.Time{}, 0
	}
	for i := range c.changed {
		ticks = c.changes[i].apply(ticks)
	}
	return c.at(ticks)
}

// Reference returns what ticks means by the clock that the counter follows, in UTC, or the zero Time if it follows none,
// or has not been set yet. A change of the counter's rate changes nothing that it read before, so that these times never
// go back.
func (c *Clock) Reference(ticks uint64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.utc {
		return time.Time{}
	}
	for i := range c.changed {
		ticks = c.changes[i].step(ticks)
	}
	return time.Unix(0, int64(ticks)-int64(c.ahead)).UTC()
}

func (c *Clock) at(ticks uint64) (time.Time, time.Duration) {
	anchor, oldest := c.pairs[c.n-1], c.pairs[0]
	since := float64(int64(ticks - anchor.fpga))
	rateError := worstCrystal
	if c.steered {
		rateError += steering
	}
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
