// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// The buckets of a Histogram: subBuckets (1<<subShift) for each power of two, so that a percentile is at most 1/16 too
// high. buckets is their total number; longer durations count in the last one.
const (
	subBuckets = 16
	subShift   = 4
	buckets    = (40 - subShift + 1) * subBuckets // up to 2^40 ns, 18 minutes
)

// A Histogram counts durations without locks or allocation. The zero Histogram is ready for use.
type Histogram struct {
	counts [buckets]atomic.Uint64
	max    atomic.Int64
	sum    atomic.Int64 // ns
}

func bucketOf(ns uint64) int {
	if ns < subBuckets {
		return int(ns)
	}
	shift := bits.Len64(ns) - 1 - subShift
	return min((shift+1)*subBuckets+int(ns>>shift)-subBuckets, buckets-1)
}

// upperBound returns the largest value, in nanoseconds, that bucketOf assigns to b. The last bucket contains larger
// values, too.
func upperBound(b int) int64 {
	if b < subBuckets {
		return int64(b)
	}
	shift := b/subBuckets - 1
	return int64(b%subBuckets+subBuckets+1)<<shift - 1
}

// Observe counts one duration. A negative one, from clocks that disagree, counts as zero.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d))].Add(1)
	h.sum.Add(int64(d))
	for {
		old := h.max.Load()
		if int64(d) <= old || h.max.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// Percentiles summarises a Histogram. Durations are encoded in nanoseconds.
type Percentiles struct {
	Count uint64        `json:"count"`   // number of durations
	P50   time.Duration `json:"p50_ns"`  // 50 % are at most this
	P99   time.Duration `json:"p99_ns"`  // 99 % are at most this
	P999  time.Duration `json:"p999_ns"` // 99.9 % are at most this
	Max   time.Duration `json:"max_ns"`  // the largest
}

// Percentiles returns the percentiles of the counted durations.
func (h *Histogram) Percentiles() Percentiles {
	var snap [buckets]uint64
	for i := range snap {
		snap[i] = h.counts[i].Load()
	}
	return percentiles(snap[:], upperBound, h.max.Load())
}

// percentiles computes percentiles from the counts of consecutive buckets. bound returns the largest value of bucket i,
// and most is the largest value of all, both in nanoseconds.
func percentiles(counts []uint64, bound func(i int) int64, most int64) Percentiles {
	p := Percentiles{Max: time.Duration(most)}
	for _, n := range counts {
		p.Count += n
	}
	at := func(q float64) time.Duration {
		rank, sum := uint64(q*float64(p.Count)), uint64(0)
		for i, n := range counts {
			if sum += n; n > 0 && sum > rank {
				return min(time.Duration(bound(i)), p.Max)
			}
		}
		return p.Max
	}
	p.P50, p.P99, p.P999 = at(0.50), at(0.99), at(0.999)
	return p
}

// A SignedHistogram is a Histogram of durations that may be negative, such as the time of an event relative to a
// reference that it can precede.
type SignedHistogram struct{ before, after Histogram }

// Observe counts one duration.
func (h *SignedHistogram) Observe(d time.Duration) {
	if d < 0 {
		h.before.Observe(-d)
	} else {
		h.after.Observe(d)
	}
}

// Percentiles returns the percentiles of the counted durations.
func (h *SignedHistogram) Percentiles() Percentiles {
	var snap [2 * buckets]uint64
	bound := func(i int) int64 {
		switch {
		case i >= buckets:
			return upperBound(i - buckets)
		case i == buckets-1:
			return 0
		}
		return -upperBound(buckets-2-i) - 1
	}
	most := h.after.max.Load()
	for i := range buckets {
		snap[buckets-1-i], snap[buckets+i] = h.before.counts[i].Load(), h.after.counts[i].Load()
	}
	last := len(snap) - 1
	for last >= 0 && snap[last] == 0 {
		last--
	}
	if last >= 0 && last < buckets { // all are negative
		most = bound(last)
	}
	return percentiles(snap[:], bound, most)
}
