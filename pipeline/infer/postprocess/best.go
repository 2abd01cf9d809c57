// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"cmp"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
)

// A candidate may become a region, or a class with a number.
type candidate struct {
	score  float32
	order  int // of two with the same score the one with the lower order comes first
	label  int64
	box    [4]float64 // left, top, right and bottom edge in pixels of the frame
	region pipeline.Region
}

func compare(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.order, b.order))
}

// best keeps the best of many candidates and counts the others. Its memory is that of twice as many as it keeps.
type best struct {
	most    int // to be kept
	list    []candidate
	cut     bool // list[:most] is sorted, and what is worse than the last one of these is left out
	leftOut int
}

func (b *best) reset() {
	b.list, b.cut, b.leftOut = b.list[:0], false, 0
}

// wants reports whether a candidate with this score may be among the best. It counts one that is not.
func (b *best) wants(score float32, order int) bool {
	if !b.cut {
		return true
	}
	last := &b.list[b.most-1]
	if score < last.score || score == last.score && order > last.order {
		b.leftOut++
		return false
	}
	return true
}

func (b *best) add(c candidate) {
	b.list = append(b.list, c)
	if len(b.list) == 2*b.most {
		b.sort()
	}
}

// sort sorts the list, the best first, and leaves out what is too much.
func (b *best) sort() {
	slices.SortFunc(b.list, compare)
	if n := len(b.list) - b.most; n >= 0 {
		b.cut = true
		b.leftOut += n
		b.list = b.list[:b.most]
	}
}
