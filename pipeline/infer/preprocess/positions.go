// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"slices"

	"github.com/tegracast/tegracast/pipeline"
)

// A position is between two pixels of the crop, part/of of the way from the first to the second, or on the first.
type position struct{ first, second, part, of int }

// positions returns the position of each of n pixels along a side of the crop.
func positions(side, n int) []position {
	list := make([]position, n)
	for i := range list {
		p := position{of: 2 * n}
		switch at := (2*i+1)*side - n; { // in units of 1/of
		case at < 0:
		case at >= (side-1)*p.of:
			p.first, p.second = side-1, side-1
		default:
			p.first, p.part = at/p.of, at%p.of
			if p.second = p.first; p.part > 0 {
				p.second++
			}
		}
		list[i] = p
	}
	return list
}

// whole returns the weight of the second pixel in units of 2^-14.
func (p position) whole() int { return (p.part<<15 + p.of) / (2 * p.of) }

// fraction returns the weight of the second pixel.
func (p position) fraction() float32 { return float32(p.part) / float32(p.of) }

const (
	group    = 8       // pixels that a kernel makes at a time
	tapBytes = 16      // that it reads for each pixel from each line
	one      = 1 << 14 // the sum of a pixel's horizontal weights
	nothing  = 0x80    // in a mask: 0
)

// taps say what eight pixels need from a line. For every pixel sixteen bytes are read at an offset, and its mask puts its
// samples into 16-bit lanes: those of the first and the second neighbour, for three channels (see lane). weight has the
// horizontal weights of the lanes. Masks and weights of the pixels are in the order of slot.
type taps struct {
	offset [group]int32
	mask   [group][tapBytes]byte
	weight [group][8]int16
}

// slot returns the place of a pixel's mask and weights: pixels 0 and 4 are neighbours, as in the halves of a register of
// AVX2, then 1 and 5, and so on.
func slot(pixel int) int { return 2*(pixel%4) + pixel/4 }

// newTaps returns the taps of the pixels from x on, for lines of length bytes whose first pixel is shift pixels to the left
// of the crop. samplesAt returns where in a line the three samples of a pixel are. It repeats the last pixel.
func newTaps(columns []position, samplesAt func(x int) [3]int, x, shift, length int) (t taps) {
	for i := range group {
		for m := range t.mask[slot(i)] {
			t.mask[slot(i)][m] = nothing
		}
		at := columns[min(x+i, len(columns)-1)]
		weights := [2]int16{int16(one - at.whole()), int16(at.whole())}
		places := [2][3]int{samplesAt(shift + at.first), samplesAt(shift + at.second)}
		offset := min(slices.Min(places[0][:]), length-tapBytes) // the second pixel's are not before the first's
		t.offset[i] = int32(offset)
		for k, s := range places {
			for channel, b := range s {
				l := lane(channel, k)
				t.weight[slot(i)][l] = weights[k]
				t.mask[slot(i)][2*l] = byte(b - offset)
			}
		}
	}
	return t
}

// samples returns a function that returns the positions in a line of pixel x's samples: R, G and B or, if reversed, B, G and R;
// Y, Cb and Cr; or three times Y.
func samples(layout pipeline.PixelFormat, reversed bool) func(x int) [3]int {
	switch {
	case layout == pipeline.RGB24 && reversed:
		return func(x int) [3]int { return [3]int{3*x + 2, 3*x + 1, 3 * x} }
	case layout == pipeline.RGB24:
		return func(x int) [3]int { return [3]int{3 * x, 3*x + 1, 3*x + 2} }
	case layout == pipeline.UYVY:
		return func(x int) [3]int { return [3]int{2*x + 1, x / 2 * 4, x/2*4 + 2} }
	}
	return func(x int) [3]int { return [3]int{x, x, x} }
}
