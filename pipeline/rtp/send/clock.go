// SPDX-License-Identifier: Apache-2.0

package send

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepUntil blocks the thread until time t of the monotonic clock. The timers of an idle runtime have a granularity of
// up to a millisecond.
func sleepUntil(t time.Duration) {
	ts := unix.NsecToTimespec(int64(t))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}
