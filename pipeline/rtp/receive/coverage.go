// SPDX-License-Identifier: Apache-2.0

package receive

import "slices"

// A span is a range of bytes [from, to).
type span struct{ from, to int }

// coverage is the set of bytes of a frame that have arrived. Packets in order form a single span.
type coverage struct {
	spans []span // sorted, neither overlapping nor adjacent
	bytes int
}

// maxSpans is the maximum number of spans of a frame, so that hostile packets cannot make a frame expensive.
const maxSpans = 4096

func (c *coverage) reset() { c.spans, c.bytes = c.spans[:0], 0 }

// add adds a span. It returns false, and adds nothing, if there are too many gaps.
func (c *coverage) add(from, to int) bool {
	if from >= to {
		return true
	}
	if n := len(c.spans); n > 0 && c.spans[n-1].to == from { // in order
		c.spans[n-1].to = to
		c.bytes += to - from
		return true
	}
	i, _ := slices.BinarySearchFunc(c.spans, from, func(s span, at int) int { return s.to - at })
	j := i
	for ; j < len(c.spans) && c.spans[j].from <= to; j++ {
		from, to = min(from, c.spans[j].from), max(to, c.spans[j].to)
		c.bytes -= c.spans[j].to - c.spans[j].from
	}
	if i == j && len(c.spans) >= maxSpans {
		return false
	}
	c.spans = slices.Replace(c.spans, i, j, span{from, to})
	c.bytes += to - from
	return true
}

// prefix returns the number of bytes that have arrived before the first gap.
func (c *coverage) prefix() int {
	if len(c.spans) == 0 || c.spans[0].from > 0 {
		return 0
	}
	return c.spans[0].to
}

// covers reports whether all bytes of a frame of n bytes have arrived.
func (c *coverage) covers(n int) bool {
	return c.bytes == n && len(c.spans) == 1 && c.spans[0].from == 0
}
