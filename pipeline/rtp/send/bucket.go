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
	level float64
	at    time.Duration
	seen  pipeline.Histogram // of packets
	gaps  pipeline.Histogram // between bursts
}

// drainFactor is β of ST 2110-21.
const drainFactor = 1.1

// add takes n packets at t of the monotonic clock.
func (b *bucket) add(n int, t time.Duration) {
	if b.at > 0 {
		b.gaps.Observe(t - b.at)
	}
	if t > b.at {
		b.level = max(0, b.level-(t-b.at).Seconds()*b.drain)
		b.at = t
	}
	b.level += float64(n)
	b.seen.Observe(time.Duration(b.level))
}

func (b *bucket) occupancy() Occupancy {
	p := b.seen.Percentiles()
	return Occupancy{int(p.P50), int(p.P99), int(p.P999), int(p.Max)}
}
