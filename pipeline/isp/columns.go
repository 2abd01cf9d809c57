// SPDX-License-Identifier: Apache-2.0

package isp

import "github.com/tegracast/tegracast/pipeline"

// The short way to RGB24 applies if the picture has full range and only black level, white balance, bilinear demosaic and
// the BT.709 curve are needed. Two kernels make a line: columnsRow converts the sensor's words to linear samples, with
// even and odd columns separated, and colorsRow converts three such lines to bytes. This way a kernel works on pixels
// that are treated alike, and no intermediate results go through memory.

// columns holds the samples of a line: even[margin+i] is pixel 2i, odd[margin+i] is pixel 2i+1.
type columns struct{ even, odd line }

func newColumns(width int) columns {
	return columns{newLine((width + 1) / 2), newLine((width + 1) / 2)}
}

// at returns the place of pixel x, which may be from -1 to the width.
func (c *columns) at(x int) *uint16 {
	if x&1 == 0 {
		return &c.even[margin+x>>1]
	}
	return &c.odd[margin+x>>1]
}

// mirror fills in one pixel beyond each end of a line of n pixels; docs/isp.md §1.
func (c *columns) mirror(n int) {
	*c.at(-1) = *c.at(reflect(-1, n))
	*c.at(n) = *c.at(reflect(n, n))
}

// columnsArgs contains the mask of the samples and, for even and odd pixels, the black level and the factor m/2^n with
// half of 2^n, for samples that have not been shifted up.
type columnsArgs struct {
	mask  uint32
	black [2]uint16
	m     [2]uint32
	half  [2]uint32
	n     [2]uint32
}

// columns returns the arguments for line y, whose samples have fewer than 16 bits. The shift of §2 is subtracted from
// the exponent of §5.
func (l *levels) columns(y int) columnsArgs {
	a := columnsArgs{mask: uint32(l.mask)}
	for i, c := range l.channels(y) {
		a.black[i] = l.black[c]
		a.m[i], a.n[i] = uint32(l.m[c]), uint32(l.n[c])-uint32(l.shift)
		if l.n[c] <= l.shift { // everything above black is white
			a.m[i], a.n[i] = 1<<15-1, 1
		}
		a.half[i] = 1 << (a.n[i] - 1)
	}
	return a
}

// columnsGo converts n little-endian words to linear samples; §2 and §5.
func columnsGo(dst *columns, src []byte, n int, a *columnsArgs) {
	for x := range n {
		s := (uint32(src[2*x]) | uint32(src[2*x+1])<<8) & a.mask
		k := uint32(a.black[x&1])
		*dst.at(x) = uint16(min(((max(s, k)-k)*a.m[x&1]+a.half[x&1])>>a.n[x&1], linearMax))
	}
}

// A phase describes which colour besides green a line of the mosaic has, and which pixels have it.
type phase struct {
	odd  int // 1: the odd pixels have it; 0: the even ones
	blue int // 1: it is blue; 0: red
}

func (l *levels) phase(y int) phase {
	if y&1 == l.red[1] {
		return phase{odd: l.red[0]}
	}
	return phase{odd: 1 - l.red[0], blue: 1}
}

// colorsGo makes R' G' B' of n pixels; §6.1, §8, §10.
func colorsGo(dst []byte, up, mid, down *columns, n int, p phase, t *tone) {
	code := func(v uint16) byte { return byte((t.table[v] + 8) >> 4) }
	for x := range n {
		sum := func(l *columns) uint16 { return *l.at(x - 1) + *l.at(x + 1) }
		c, v := *mid.at(x), *up.at(x)+*down.at(x)
		own, green, other := c, (sum(mid)+v+2)>>2, (sum(up)+sum(down)+2)>>2
		if x&1 != p.odd {
			own, green, other = (sum(mid)+1)>>1, c, (v+1)>>1
		}
		d := (*[3]byte)(dst[3*x:])
		d[2*p.blue], d[1], d[2-2*p.blue] = code(own), code(green), code(other)
	}
}

// colorsLines contains the columns of a line's own colour and of green, and those above and below them, for vector
// kernels.
type colorsLines struct{ own, green, upOwn, upGreen, downOwn, downGreen *uint16 }

// newColorsLines returns the columns from pixel x on, which has the own colour, and from its neighbour x^1 on, which is
// green.
func newColorsLines(up, mid, down *columns, x int) colorsLines {
	return colorsLines{mid.at(x), mid.at(x ^ 1), up.at(x), up.at(x ^ 1), down.at(x), down.at(x ^ 1)}
}

// short reports whether the plan has a single output that can be made the short way.
func (p *plan) short(t *tone) bool {
	if !hasColors() || t.bytes == nil || len(p.outs) != 1 || p.levels.mono || p.samples.Bits == 16 {
		return false
	}
	o := &p.outs[0]
	return o.format.Pixel == pipeline.RGB24 && o.size == 0 && o.convert.rgb == nil && p.turn == (Turn{}) &&
		p.direct && p.method == Bilinear && p.matrix == nil && p.sharpen == 0
}

// columnsLine returns line y after white balance, like linearLine.
func (w *worker) columnsLine(y int) *columns {
	p := w.plan
	y = reflect(y, p.in.Height)
	i := y % len(w.columns)
	c := &w.columns[i]
	if w.columnsY[i] != y {
		w.columnsY[i] = y
		a := p.levels.columns(y)
		columnsRow(c, w.words(y), p.in.Width, &a)
		c.mirror(p.in.Width)
	}
	return c
}

// writeColors writes line y of the output.
func (w *worker) writeColors(o *output, dst []byte, y int) {
	n := o.format.Width
	up, mid, down := w.columnsLine(y-1), w.columnsLine(y), w.columnsLine(y+1)
	order := w.plan.weaves[y&1]
	to := part{0, y, n}
	if o.count == 1 {
		piece, _ := o.piece(dst, to, 0)
		colorsRow(piece, up, mid, down, n, order, w.tone)
		return
	}
	colorsRow(w.bytes, up, mid, down, n, order, w.tone)
	for x := 0; x < n; {
		piece, k := o.piece(dst, to, x)
		copy(piece, w.bytes[o.bytes(x):])
		x += k
	}
}
