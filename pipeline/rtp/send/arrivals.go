// SPDX-License-Identifier: Apache-2.0

package send

import "time"

// arrivals tells when frames came.
type arrivals struct {
	period time.Duration // 0: not known
	last   time.Duration // by the monotonic clock
}

// came is when the frame came that can be sent at now. One that waited in the queue came earlier: a period after the one
// before, as far as can be told. Where the queue has dropped some that is too early, and the sender as late as can be.
func (a *arrivals) came(now time.Duration, waited bool) time.Duration {
	if waited && a.period > 0 && a.last > 0 {
		now = min(now, a.last+a.period)
	}
	a.last = now
	return now
}
