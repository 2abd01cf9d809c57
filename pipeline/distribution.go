// SPDX-License-Identifier: Apache-2.0

package pipeline

import "time"

// A Distribution is what a Histogram has counted, in buckets an octave apart.
type Distribution struct {
	Count uint64
	Sum   time.Duration
	Below []Below // the limits ascend; each counts what those before it count, too
}

// Below counts the durations under a limit.
type Below struct {
	Limit time.Duration
	Count uint64
}

// The limits of a Distribution: 131 µs to 8.6 s.
const firstLimit, lastLimit = 17, 33 // powers of two, in ns

// Distribution reads the histogram.
func (h *Histogram) Distribution() Distribution {
	var d Distribution
	limit, next := firstLimit, bucketOf(1<<firstLimit)
	for i := range h.counts {
		if i == next && limit <= lastLimit {
			d.Below = append(d.Below, Below{1 << limit, d.Count})
			limit++
			next = bucketOf(1 << limit)
		}
		d.Count += h.counts[i].Load()
	}
	d.Sum = time.Duration(h.sum.Load())
	return d
}
