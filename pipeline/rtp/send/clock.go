// SPDX-License-Identifier: Apache-2.0

package send

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// A clock is a pair of readings at the same moment, of Go's clock and of the monotonic clock, which sleepUntil uses. Go
// reads the monotonic clock without a system call, but relative to a different zero.
type clock struct {
	time time.Time
	at   time.Duration
}

// newClock takes several pairs of readings and returns the pair taken within the shortest time, because the thread may
// be interrupted between the two readings of a pair.
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

// now returns the time of the monotonic clock.
func (c *clock) now() time.Duration { return c.at + time.Since(c.time) }

// monotonic returns the time of the monotonic clock by a system call.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail on Linux
	return time.Duration(t.Nano())
}

// sleepUntil blocks the thread until time t of the monotonic clock. The timers of an idle runtime have a granularity of
// up to a millisecond.
func sleepUntil(t time.Duration) {
	ts := unix.NsecToTimespec(int64(t))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}
