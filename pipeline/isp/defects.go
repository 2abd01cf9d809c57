// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"image"
	"slices"
)

// pairs returns the offsets of the four pairs of opposite neighbours at distance step, in the order in which
// docs/isp.md §3 considers them.
func pairs(step int) [4][2]image.Point {
	w, n, nw, ne := image.Pt(-step, 0), image.Pt(0, -step), image.Pt(-step, -step), image.Pt(step, -step)
	return [4][2]image.Point{{w, w.Mul(-1)}, {n, n.Mul(-1)}, {nw, nw.Mul(-1)}, {ne, ne.Mul(-1)}}
}

// A defect is a known defective pixel of a line. Bit i of usable is set if its pair i of neighbours (see pairs) may
// replace it.
type defect struct {
	x      int
	usable uint8
}

// newDefects returns the known defects within the frame by line, from left to right. A pair that contains a defect is
// not usable.
func newDefects(pixels []image.Point, width, height, step int) map[int][]defect {
	bounds := image.Rect(0, 0, width, height)
	bad := map[image.Point]bool{}
	for _, p := range pixels {
		if p.In(bounds) {
			bad[p] = true
		}
	}
	defects := map[int][]defect{}
	for p := range bad {
		d := defect{x: p.X}
		for i, pair := range pairs(step) {
			a, b := p.Add(pair[0]), p.Add(pair[1])
			if !bad[image.Pt(reflect(a.X, width), reflect(a.Y, height))] && !bad[image.Pt(reflect(b.X, width), reflect(b.Y, height))] {
				d.usable |= 1 << i
			}
		}
		defects[p.Y] = append(defects[p.Y], d)
	}
	for _, line := range defects {
		slices.SortFunc(line, func(a, b defect) int { return a.x - b.x })
	}
	return defects
}

// repaired returns the mean of that usable pair around index x whose samples differ least, or the sample itself if
// there is no usable pair. up and down are the lines step above and below.
func repaired(up, mid, down line, x, step int, usable uint8) uint16 {
	best, value := 1<<16, mid[x]
	for i, p := range [4][2]uint16{
		{mid[x-step], mid[x+step]},
		{up[x], down[x]},
		{up[x-step], down[x+step]},
		{up[x+step], down[x-step]},
	} {
		a, b := int(p[0]), int(p[1])
		if d := max(a, b) - min(a, b); usable>>i&1 != 0 && d < best {
			best, value = d, uint16((a+b+1)>>1)
		}
	}
	return value
}
