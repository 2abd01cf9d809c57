// SPDX-License-Identifier: Apache-2.0

package send

import (
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Occupancy is how full a receiver's buffer would be, in packets, that drains at the stream's rate and a tenth more
// (the network compatibility model of SMPTE ST 2110-21:2017 §6.6). It is reckoned from when packets are handed to the
// kernel; no conformity is claimed.
type Occupancy struct {
	P50  int `json:"p50"`
	P99  int `json:"p99"`
	P999 int `json:"p999"`
	Max  int `json:"max"`
}

// bucket is the buffer. The zero bucket is empty and drains nothing.
type bucket struct {
	drain float64 // packets a second
	full  float64 // packets that a late sender may fill it to
	level float64
	at    time.Duration
	seen  pipeline.Histogram // of packets
	gaps  pipeline.Histogram // between bursts
}

// drainFactor is β of ST 2110-21.
const drainFactor = 1.1

// set is for frames of n packets each period. A late sender may fill a receiver's buffer of ST 2110-21:2017 §7.1: for
// narrow senders 8 packets or 1/27000 s of the stream, for others 720 or 1/300 s.
func (b *bucket) set(n int, period time.Duration, p Pacing) {
	rate := float64(n) / period.Seconds()
	b.drain, b.full = drainFactor*rate, max(720, rate/300)
	if p == PaceNarrow {
		b.full = max(8, rate/27000)
	}
}

// span is the time for n packets from start on. That is most, or the time until end where there is less; but half of most,
// and as much as the buffer needs: when it is full, the packets drain as fast as they come.
func (b *bucket) span(n int, start, end, most time.Duration) time.Duration {
	if end-start >= most {
		return most
	}
	drain := func(packets float64) time.Duration { return time.Duration(packets / b.drain * float64(time.Second)) }
	least := drain(b.levelAt(start) + float64(n) - b.full)
	return max(end-start, most/2, min(least, max(most, drain(float64(n)))))
}

// room is when n packets more fit into what a late sender may fill, seen at t.
func (b *bucket) room(n int, t time.Duration) time.Duration {
	over := b.levelAt(t) + float64(n) - b.full
	if over <= 0 || b.drain == 0 {
		return t
	}
	return max(t, b.at) + time.Duration(over/b.drain*float64(time.Second))
}

// levelAt is the level at t, if nothing comes until then.
func (b *bucket) levelAt(t time.Duration) float64 {
	return max(0, b.level-max(0, t-b.at).Seconds()*b.drain)
}

// add takes n packets at t of the monotonic clock.
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
