// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// counter is the timestamp counter: it was value in ns at time at, and has since run ppm parts per million too fast.
type counter struct {
	at    time.Time
	value int64
	ppm   float64
}

// read returns the counter in ns at time t, but at least 0. t may be before c.at.
func (c *counter) read(t time.Time) uint64 {
	elapsed := t.Sub(c.at)
	drift := math.Floor(float64(elapsed) * c.ppm / 1e6)
	return uint64(max(0, c.value+int64(elapsed)+int64(drift)))
}

// move makes t the reference point of the counter.
func (c *counter) move(t time.Time) { c.value, c.at = int64(c.read(t)), t }

func (c *counter) runAt(t time.Time, ppm float64) {
	c.move(t)
	c.ppm = ppm
}

// timestamp returns the timestamp counter in ns at time t. Device.mu must be held.
func (d *Device) timestamp(t time.Time) uint64 { return d.counter.read(t) }

// maxTimeRate is the maximum absolute value of TIME_RATE, in parts in 10^9. Values beyond it are clamped.
const maxTimeRate = 1_000_000

// timeSet holds what the host has written to TIME_STEP and TIME_RATE.
type timeSet struct {
	stepLow, stepHigh uint32
	rate              int32 // parts in 10^9
}

// read returns a register; ok is false if off is a different one.
func (s *timeSet) read(off uint32) (v uint32, ok bool) {
	switch off {
	case fpga.CamTimeStepLow:
		return s.stepLow, true
	case fpga.CamTimeStepHigh:
		return s.stepHigh, true
	case fpga.CamTimeRate:
		return uint32(s.rate), true
	}
	return 0, false
}

// setTime handles a write to TIME_STEP or TIME_RATE. mu must be held.
func (d *Device) setTime(off, v uint32) {
	switch off {
	case fpga.CamTimeStepLow:
		d.timeSet.stepLow = v
	case fpga.CamTimeStepHigh:
		d.timeSet.stepHigh = v
		d.counter.move(d.clock.Now())
		d.counter.value += int64(uint64(v)<<32 | uint64(d.timeSet.stepLow))
	case fpga.CamTimeRate:
		d.timeSet.rate = min(max(int32(v), -maxTimeRate), maxTimeRate)
		d.counter.runAt(d.clock.Now(), d.clockPPM+float64(d.timeSet.rate)/1e3)
	}
}

// SetClockPPM makes the timestamp counter run faster, or if ppm is negative slower, than Config.Clock by that many
// parts per million, at most 10,000, from now on. TIME_RATE is added to that. The frame timer is not affected.
func (d *Device) SetClockPPM(ppm float64) error {
	if math.IsNaN(ppm) || math.Abs(ppm) > maxPPM {
		return fmt.Errorf("model: a clock that is off by %g ppm, want up to %d either way", ppm, maxPPM)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clockPPM = ppm
	d.counter.runAt(d.clock.Now(), ppm+float64(d.timeSet.rate)/1e3)
	return nil
}

// StepClock moves the timestamp counter by step, forwards or back, but not below zero. No design does that on purpose,
// but one whose clock manager loses lock does.
func (d *Device) StepClock(step time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counter.move(d.clock.Now())
	d.counter.value = max(0, d.counter.value+int64(step))
}
