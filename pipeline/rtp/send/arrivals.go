// SPDX-License-Identifier: Apache-2.0

package send

import "time"

// arrivals estimates when frames arrived.
type arrivals struct {
	period time.Duration // 0 if unknown
	last   time.Duration // arrival of the previous frame by the monotonic clock; 0 if there was none
}

// came returns the estimated arrival time of the frame that can be sent at time now. That is now or, for a frame that
// waited in the queue, one period after the estimated arrival of the previous frame, if that is earlier. If the queue
// has dropped frames, this estimate is too early: the frame counts as later than it is.
func (a *arrivals) came(now time.Duration, waited bool) time.Duration {
	if waited && a.period > 0 && a.last > 0 {
		now = min(now, a.last+a.period)
	}
	a.last = now
	return now
}
