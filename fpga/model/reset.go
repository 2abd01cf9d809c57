// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// Reset performs a hot reset from outside, as an operating system can do with a device on the bus: all registers except
// the MSI-X table go to their reset values, and the work of the engines is discarded. While the link is lost, it has no
// effect.
func (d *Device) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.down.Load() {
		d.reset()
	}
}

// reset puts the device into its reset state. It must be called with mu held. The MSI-X table is kept, as if the
// operating system had restored it; so are the block RAM and the numbers of opportunities (see FaultID).
func (d *Device) reset() {
	d.resets++
	d.common, d.irq, d.msix.pending = common{}, irqBlock{}, 0
	d.counter, d.timeSet = counter{at: d.clock.Now(), ppm: d.clockPPM}, timeSet{}
	for _, e := range d.engines() {
		e.reset()
	}
	for _, c := range d.cameras {
		c.reset()
	}
}

// reset puts the channel into its reset state, except for its identity and wiring. The goroutine notices by
// Device.resets that its work is void.
func (e *engine) reset() {
	e.control, e.status, e.mask, e.completed, e.credits = 0, 0, 0, 0, 0
	e.busy, e.restarted = false, false
	e.pollAddr, e.first, e.firstAdjacent = 0, 0, 0
	e.perf, e.faultyState = perfMonitor{}, faultyState{}
	if e.source != nil {
		e.source.reset()
	}
	if e.sink != nil {
		e.sink.reset()
	}
	e.kick()
}

// hitDevice makes F12 happen if it is armed, or else F4, and reports whether one did. Device.mu must be held.
func (e *engine) hitDevice() bool {
	if _, hit := e.fire(F12, "all registers reset"); hit {
		e.d.reset()
		return true
	}
	a := e.armed[F4]
	if !a.on {
		return false
	}
	if a.variant(16) == 15 {
		e.fire(F4, "link lost for ever")
		e.d.loseLink(0)
	} else {
		e.fire(F4, "link lost")
		e.d.loseLink(time.Duration(3+a.roll>>8%(longestLink-2)) * e.d.framePeriod())
	}
	return true
}

// framePeriod returns the frame period of the first sensor, but at most a second, or defaultOutage if there is no
// sensor or its period is 0.
func (d *Device) framePeriod() time.Duration {
	if len(d.cameras) > 0 && d.cameras[0].period > 0 {
		return min(d.cameras[0].periodTime(), time.Second)
	}
	return defaultOutage
}

// loseLink makes the device unreachable for outage, after which it is in its reset state. If outage is 0, the device
// stays unreachable until Withdraw is called. Device.mu must be held.
func (d *Device) loseLink(outage time.Duration) {
	d.down.Store(true)
	d.reset()
	if outage > 0 {
		d.after(outage, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.reset() // also undoes a write that was in progress when the link was lost
			d.down.Store(false)
		})
	}
}
