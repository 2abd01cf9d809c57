// SPDX-License-Identifier: Apache-2.0

package receive

import "slices"

// A span is the bytes [from, to).
type span struct{ from, to int }

// coverage is the set of bytes of a frame that have come. Packets in order make one span of it.
type coverage struct {
	spans []span // sorted, apart from each other
	bytes int
}

// maxSpans bounds the holes in a frame, so that hostile packets cannot make a frame costly.
const maxSpans = 4096

func (c *coverage) reset() { c.spans, c.bytes = c.spans[:0], 0 }

// add adds a span. It returns false when the holes are too many.
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

// prefix is how many bytes have come without a hole before them.
func (c *coverage) prefix() int {
	if len(c.spans) == 0 || c.spans[0].from > 0 {
		return 0
	}
	return c.spans[0].to
}

// whole says whether all n bytes have come.
func (c *coverage) whole(n int) bool {
	return c.bytes == n && len(c.spans) == 1 && c.spans[0].from == 0
}
