// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"
	"time"
)

// counter is the timestamp counter: value ns at time at, running ppm parts per million too fast since then.
type counter struct {
	at    time.Time
	value int64
	ppm   float64
}

// read is the counter at time t, which may lie before at.
func (c *counter) read(t time.Time) uint64 {
	elapsed := t.Sub(c.at)
	drift := math.Floor(float64(elapsed) * c.ppm / 1e6)
	return uint64(max(0, c.value+int64(elapsed)+int64(drift)))
}

// move makes t the point from which the counter is reckoned.
func (c *counter) move(t time.Time) { c.value, c.at = int64(c.read(t)), t }

// timestamp is the timestamp counter in ns at time t. It is called with Device.mu held.
func (d *Device) timestamp(t time.Time) uint64 { return d.counter.read(t) }

// SetClockPPM makes the timestamp counter run faster (or slower) than Config.Clock by that many parts per million from
// now on, up to 10,000. The frame timer is not affected.
func (d *Device) SetClockPPM(ppm float64) error {
	if math.IsNaN(ppm) || math.Abs(ppm) > maxPPM {
		return fmt.Errorf("model: a clock that is off by %g ppm, want up to %d either way", ppm, maxPPM)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counter.move(d.clock.Now())
	d.counter.ppm = ppm
	return nil
}

// StepClock sets the timestamp counter forward by step, or back, at most to zero. No design does that on purpose; one
// whose clock manager loses lock does.
func (d *Device) StepClock(step time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counter.move(d.clock.Now())
	d.counter.value = max(0, d.counter.value+int64(step))
}
