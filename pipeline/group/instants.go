// SPDX-License-Identifier: Apache-2.0

package group

import (
	"context"
	"math/bits"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Instants are the multiples of the period of a rate since 1970, by the wall clock (UTC, without leap seconds). Those of
// a whole number of frames a second are aligned to the second. A Rate has at most 10^6 as Num and Den.
type Instants pipeline.Rate

// second is the number of ns in a second.
const second = uint64(time.Second)

// latest is the last time that has a number, in s since 1970: UnixNano is defined until 2262.
const latest = 9_000_000_000

// Nearest returns the number of the instant nearest to t, and how long after that instant t is. It returns false for
// times before 1970 and after 2255, and for the instant 0.
func (i Instants) Nearest(t time.Time) (n uint64, off time.Duration, ok bool) {
	if s := t.Unix(); s < 0 || s > latest {
		return 0, 0, false
	}
	ns, period := uint64(t.UnixNano()), uint64(i.Den)*second // period is in units of 1/Num ns
	hi, lo := bits.Mul64(ns, uint64(i.Num))
	n, rest := bits.Div64(hi, lo, period) // hi < period: ns < 2^63 and Num <= 10^6
	if rest > period/2 {
		n++
	}
	return n, t.Sub(i.At(n)), n > 0
}

// At returns instant n, rounded down to a ns. The time has no monotonic reading.
func (i Instants) At(n uint64) time.Time {
	hi, lo := bits.Mul64(n, uint64(i.Den)*second)
	if hi >= uint64(i.Num) { // beyond the year 2554
		return time.Time{}
	}
	ns, _ := bits.Div64(hi, lo, uint64(i.Num))
	return time.Unix(int64(ns/second), int64(ns%second))
}

// from returns the number of the first instant that is not before t, at least 1.
func (i Instants) from(t time.Time) uint64 {
	n, off, ok := i.Nearest(t)
	if ok && off > 0 {
		n++
	}
	return max(n, 1)
}

// A Metronome waits for the instants of a rate.
type Metronome struct {
	Instants
	Slack time.Duration // how late an instant may be observed, except the first one
	last  uint64        // the latest instant that was observed; 0: none
	at    time.Time     // its time, with a monotonic reading
}

// Next waits for the next instant and returns its number. missed is the number of instants since the previous one that
// were not observed, because Next was called, or this machine woke it, too late for them; steps of the wall clock are
// not counted. If ctx ends first, ok is false.
func (m *Metronome) Next(ctx context.Context) (n, missed uint64, ok bool) {
	for {
		n, skipped := m.next(time.Now())
		if d := time.Until(m.At(n)); d > 0 {
			t := time.NewTimer(d)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return 0, missed + skipped, false
			}
		}
		observed, inTime := m.observe(n, time.Now())
		if ctx.Err() != nil {
			return 0, missed + skipped, false
		}
		if !observed {
			continue
		}
		if missed += skipped; inTime {
			return n, missed, true
		}
		missed++
	}
}

// observe notes that instant n was observed at now, and reports whether that is in time. It notes nothing if the instant
// is still to come: the wall clock was set back, or went slower than the monotonic one that timers have.
func (m *Metronome) observe(n uint64, now time.Time) (observed, inTime bool) {
	late := now.Sub(m.At(n))
	if late < 0 {
		return false, false
	}
	m.last, m.at = n, now.Add(-late)
	return true, late <= m.Slack
}

// next returns the number of the next instant, and how many were missed before it.
func (m *Metronome) next(now time.Time) (n, missed uint64) {
	slack, period := m.Slack, max(pipeline.Rate(m.Instants).Period(), 1)
	if m.last == 0 {
		slack = 0
	}
	n = m.from(now.Add(-slack))
	if n <= m.last && m.At(m.last+1).Sub(now) <= 2*period { // otherwise the clock has stepped back
		n = m.last + 1
	}
	if m.last > 0 && n > m.last {
		missed = min(n-m.last-1, uint64(now.Sub(m.at)/period))
	}
	return n, missed
}
