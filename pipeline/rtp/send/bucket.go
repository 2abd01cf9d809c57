// SPDX-License-Identifier: Apache-2.0

package send

import (
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Occupancy summarizes the level, in packets, of a receiver's buffer that drains 10 % faster than the stream's rate
// (the network compatibility model of SMPTE ST 2110-21:2017 §6.6). It is computed from the times at which packets are
// handed to the kernel; conformance is not claimed.
type Occupancy struct {
	P50  int `json:"p50"`
	P99  int `json:"p99"`
	P999 int `json:"p999"`
	Max  int `json:"max"`
}

// bucket is a model of the receiver's buffer that Occupancy describes. The zero bucket is empty and does not drain.
type bucket struct {
	drain float64 // packets per second
	full  float64 // level in packets up to which a late sender may fill it
	level float64
	at    time.Duration
	seen  pipeline.Histogram // levels in packets
	gaps  pipeline.Histogram // between bursts
}

// drainFactor is β of ST 2110-21.
const drainFactor = 1.1

// set configures the bucket for frames of n packets per period. A late sender may fill the bucket up to the size of a
// receiver's buffer (ST 2110-21:2017 §7.1): for narrow senders 8 packets or 1/27000 s of the stream, for others 720
// packets or 1/300 s, whichever is more.
func (b *bucket) set(n int, period time.Duration, p Pacing) {
	rate := float64(n) / period.Seconds()
	b.drain, b.full = drainFactor*rate, max(720, rate/300)
	if p == PaceNarrow {
		b.full = max(8, rate/27000)
	}
}

// span returns the time over which to spread n packets from start on: most, or the time until end if that is less. In
// the latter case it is at least half of most, and at least the time that the buffer needs for them, because a full
// buffer accepts packets only as fast as it drains; but it is not extended beyond most or, if longer, the time in which
// n packets drain.
func (b *bucket) span(n int, start, end, most time.Duration) time.Duration {
	if end-start >= most {
		return most
	}
	drain := func(packets float64) time.Duration { return time.Duration(packets / b.drain * float64(time.Second)) }
	least := drain(b.levelAt(start) + float64(n) - b.full)
	return max(end-start, most/2, min(least, max(most, drain(float64(n)))))
}

// room returns the time, at or after t, at which n more packets fit below the level to which a late sender may fill the
// buffer.
func (b *bucket) room(n int, t time.Duration) time.Duration {
	over := b.levelAt(t) + float64(n) - b.full
	if over <= 0 || b.drain == 0 {
		return t
	}
	return max(t, b.at) + time.Duration(over/b.drain*float64(time.Second))
}

// levelAt returns the level at t if no packets are added until then.
func (b *bucket) levelAt(t time.Duration) float64 {
	return max(0, b.level-max(0, t-b.at).Seconds()*b.drain)
}

// add adds n packets at time t of the monotonic clock.
func (b *bucket) add(n int, t time.Duration) {
	if b.at > 0 {
		b.gaps.Observe(t - b.at)
	}
	b.level = b.levelAt(t) + float64(n)
	b.at = max(b.at, t)
	b.seen.Observe(time.Duration(b.level))
}

func (b *bucket) occupancy() Occupancy {
	p := b.seen.Percentiles()
	return Occupancy{int(p.P50), int(p.P99), int(p.P999), int(p.Max)}
}
