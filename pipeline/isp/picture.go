// SPDX-License-Identifier: Apache-2.0

package isp

import "github.com/tegracast/tegracast/pipeline"

// pictureLines is the number of lines of R'G'B' that are kept, for sharpening and for the two lines of 4:2:0. If pictures
// are transposed, finished lines are kept as long as a band lasts.
const pictureLines = 4

// A picture keeps the most recently made lines of a frame at one size.
type picture struct {
	lines     []rgb  // after the tone curve
	lumas     []line // of lines, for sharpening
	y         []int  // line of the picture in each of lines and lumas; -1: none
	sharp     []rgb  // sharpened
	sharpY    []int  // line of the picture in each of sharp; -1: none
	reversed  []rgb  // from right to left
	reversedY []int  // line of the picture in each of reversed; -1: none
	width     int
}

func (q *picture) resize(size int, p *plan) {
	q.width = p.in.Width >> size
	n, final := pictureLines, pictureLines
	if p.turn.Transpose {
		final = bandLines>>size + 2 // with the neighbours
	}
	if p.sharpen > 0 {
		q.sharp, q.sharpY = newRGBs(final, q.width, p)
		for range n {
			q.lumas = append(q.lumas, newLine(q.width))
		}
	} else {
		n = final
	}
	q.lines, q.y = newRGBs(n, q.width, p)
	if p.turn.ReverseX && !p.turn.Transpose {
		q.reversed, q.reversedY = newRGBs(2, q.width, p)
	}
}

// newRGBs returns n lines, and the numbers of the lines that they hold.
func newRGBs(n, width int, p *plan) ([]rgb, []int) {
	list := make([]rgb, n)
	for i := range list {
		list[i] = newRGB(width, p)
	}
	return list, make([]int, n)
}

// newRGB returns a line of three colours. For a monochrome sensor all three are the same line.
func newRGB(width int, p *plan) rgb {
	g := newLine(width)
	if p.samples.Mosaic == pipeline.Mono {
		return rgb{g, g, g}
	}
	return rgb{newLine(width), g, newLine(width)}
}

func (q *picture) clear() {
	for _, list := range [][]int{q.y, q.sharpY, q.reversedY} {
		for i := range list {
			list[i] = -1
		}
	}
}

// mirror fills the margins of the colours.
func (p *rgb) mirror(n int) {
	p.r.mirror(n)
	p.g.mirror(n)
	p.b.mirror(n)
}

// toneLine returns line y of the size, which it makes if it is not among the recent lines: demosaic or quads, colour
// matrix, tone curve; docs/isp.md §6 to §8.
func (w *worker) toneLine(size, y int) *rgb {
	q := &w.size[size]
	y = reflect(y, w.plan.in.Height>>size)
	i := y % len(q.lines)
	p := &q.lines[i]
	if q.y[i] == y {
		return p
	}
	q.y[i] = y
	switch size {
	case 0:
		w.demosaic(p, y)
	case 1:
		quads(p, &w.plan.levels, [2]line{w.linearLine(2 * y), w.linearLine(2*y + 1)}, q.width)
	case 2:
		quadsOfQuads(p, &w.plan.levels, [4]line{w.linearLine(4 * y), w.linearLine(4*y + 1), w.linearLine(4*y + 2), w.linearLine(4*y + 3)}, q.width)
	}
	r, g, b := p.r.at(0, q.width), p.g.at(0, q.width), p.b.at(0, q.width)
	if w.plan.matrix != nil {
		matrixRow(r, g, b, w.plan.matrix)
	}
	toneRow(g, w.tone)
	if !w.plan.levels.mono {
		toneRow(r, w.tone)
		toneRow(b, w.tone)
	}
	p.mirror(q.width)
	if q.lumas != nil {
		detailRow(q.lumas[i].at(0, q.width), r, g, b)
		q.lumas[i].mirror(q.width)
	}
	return p
}

// demosaic makes the three colours of line y.
func (w *worker) demosaic(p *rgb, y int) {
	l, n := &w.plan.levels, w.plan.in.Width
	mid := w.linearLine(y)
	if l.mono {
		copy(p.g, mid)
		return
	}
	d := mosaicLine{own: p.r, green: p.g, other: p.b, odd: l.red[0]}
	if y&1 != l.red[1] {
		d.own, d.other, d.odd = p.b, p.r, 1-l.red[0]
	}
	up, down := w.linearLine(y-1), w.linearLine(y+1)
	if w.plan.method == Bilinear {
		bilinearRow(&d, up, mid, down, n)
		return
	}
	malvarRow(&d, &[5]line{w.linearLine(y - 2), up, mid, down, w.linearLine(y + 2)}, n)
}

// sharpLine returns line y as it is to be written, unless it is turned; docs/isp.md §9.
func (w *worker) sharpLine(size, y int) *rgb {
	if w.plan.sharpen == 0 {
		return w.toneLine(size, y)
	}
	q := &w.size[size]
	i := y % len(q.sharp)
	to := &q.sharp[i]
	if q.sharpY[i] == y {
		return to
	}
	q.sharpY[i] = y
	var lumas [3]line
	for d := range lumas {
		at := reflect(y+d-1, w.plan.in.Height>>size)
		w.toneLine(size, at)
		lumas[d] = q.lumas[at%len(q.lines)]
	}
	sharpenRow(to, &q.lines[y%len(q.lines)], &lumas, q.width, w.plan.sharpen)
	to.mirror(q.width)
	return to
}
