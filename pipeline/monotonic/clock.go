// SPDX-License-Identifier: Apache-2.0

// Package monotonic converts between Go's clock and the kernel's monotonic one (CLOCK_MONOTONIC), by which drivers stamp
// frames and packets are scheduled.
package monotonic

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is a pair of readings at the same moment, of Go's clock and of the monotonic clock. Go reads the monotonic clock
// without a system call, but relative to a different zero.
type Clock struct {
	time time.Time
	at   time.Duration
}

// NewClock takes several pairs of readings and returns the pair taken within the shortest time, because the thread may
// be interrupted between the two readings of a pair.
func NewClock() (best Clock) {
	closest := time.Duration(math.MaxInt64)
	for range 16 {
		before := time.Now()
		at := Now()
		if took := time.Since(before); took < closest {
			closest, best = took, Clock{before.Add(took / 2), at}
		}
	}
	return best
}

// Now returns the time of the monotonic clock, without a system call. It is faster than Of(time.Now()), which also reads
// the wall clock.
func (c *Clock) Now() time.Duration { return c.at + time.Since(c.time) }

// Of returns the time of the monotonic clock at t, which must be a reading of Go's clock.
func (c *Clock) Of(t time.Time) time.Duration { return c.at + t.Sub(c.time) }

// Now returns the time of the monotonic clock by a system call.
func Now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail on Linux
	return time.Duration(t.Nano())
}
