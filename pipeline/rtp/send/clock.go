// SPDX-License-Identifier: Apache-2.0

package send

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// A clock is one moment by the time of Go and by the monotonic clock, which sleepUntil waits on. Go reads that clock
// without a system call, but from another zero.
type clock struct {
	time time.Time
	at   time.Duration
}

// newClock takes the closest of some readings, since the thread may have been interrupted between the two of one.
func newClock() (best clock) {
	closest := time.Duration(math.MaxInt64)
	for range 16 {
		before := time.Now()
		at := monotonic()
		if took := time.Since(before); took < closest {
			closest, best = took, clock{before.Add(took / 2), at}
		}
	}
	return best
}

// now is the time of the monotonic clock.
func (c *clock) now() time.Duration { return c.at + time.Since(c.time) }

// monotonic asks the kernel for the time of the monotonic clock.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail on Linux
	return time.Duration(t.Nano())
}

// sleepUntil blocks the thread: the runtime's own timers are as coarse as a millisecond when it is idle.
func sleepUntil(t time.Duration) {
	ts := unix.NsecToTimespec(int64(t))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}
