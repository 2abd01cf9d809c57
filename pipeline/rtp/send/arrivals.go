// SPDX-License-Identifier: Apache-2.0

package send

import "time"

// arrivals estimates when frames arrived.
type arrivals struct {
	period time.Duration // 0 if unknown
	last   time.Duration // by the monotonic clock
}

// came returns the arrival time of the frame that can be sent at time now. A frame that waited in the queue is taken to
// have arrived earlier: one period after the previous frame. If the queue has dropped frames, that estimate is too
// early: the frame counts as later than it is.
func (a *arrivals) came(now time.Duration, waited bool) time.Duration {
	if waited && a.period > 0 && a.last > 0 {
		now = min(now, a.last+a.period)
	}
	a.last = now
	return now
}
