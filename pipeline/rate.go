// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A limiter reduces the frame rate: it passes the frames that are closest to the times of the lower rate.
type limiter struct {
	every time.Duration // zero passes all frames
	slack time.Duration // half a period of the source
	next  time.Time
}

func newLimiter(source, want Rate) limiter {
	if want.Num == 0 {
		return limiter{}
	}
	return limiter{every: want.Period(), slack: source.Period() / 2}
}

// Period returns the time from one frame to the next, or zero for a variable rate.
func (r Rate) Period() time.Duration {
	if r.Num == 0 {
		return 0
	}
	return time.Duration(int64(time.Second) * int64(r.Den) / int64(r.Num))
}

func (l *limiter) due(f *Frame) bool {
	if l.every == 0 {
		return true
	}
	at := f.Times.ExposureStart
	switch {
	case at.IsZero() && f.Filling():
		at = time.Now()
	case at.IsZero():
		at = f.Times.Captured
	}
	if at.Add(l.slack).Before(l.next) && l.next.Sub(at) <= 2*l.every { // a clock that was set back restarts the limiter
		return false
	}
	l.next = l.next.Add(l.every)
	if l.next.Before(at) || l.next.Sub(at) > 2*l.every {
		l.next = at.Add(l.every)
	}
	return true
}

// UnmarshalText implements encoding.TextUnmarshaler: "30" or "30000/1001".
func (r *Rate) UnmarshalText(b []byte) error {
	num, den, fraction := strings.Cut(string(b), "/")
	n, err := strconv.Atoi(num)
	d := 1
	if err == nil && fraction {
		d, err = strconv.Atoi(den)
	}
	if err != nil || n < 1 || d < 1 || n > 1e6 || d > 1e6 {
		return fmt.Errorf("rate %q: write frames a second as 30 or 30000/1001", b)
	}
	*r = Rate{n, d}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
