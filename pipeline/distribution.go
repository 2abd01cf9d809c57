// SPDX-License-Identifier: Apache-2.0

package pipeline

import "time"

// A Distribution holds the counts of a Histogram by coarser limits, each twice the one before.
type Distribution struct {
	Count uint64
	Sum   time.Duration
	Below []Below // limits ascend; counts are cumulative
}

// Below is the number of durations below a limit.
type Below struct {
	Limit time.Duration
	Count uint64
}

// firstLimit and lastLimit are the exponents of the lowest and the highest limit of a Distribution: 131 µs and 8.6 s.
const firstLimit, lastLimit = 17, 33 // powers of two, in ns

// Distribution returns the histogram's counts as a Distribution.
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
