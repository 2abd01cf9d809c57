// SPDX-License-Identifier: Apache-2.0

package isp

// A Turn says how the pictures lie in the sensor's frame; docs/isp.md §9a. The zero value leaves them as they are.
type Turn struct {
	Transpose bool // a line of the picture is a column of the frame
	ReverseX  bool // columns of the frame are taken from the right
	ReverseY  bool // lines of the frame are taken from the bottom
}

// NewTurn returns the Turn of pictures that are mirrored, left to right or top to bottom, and then turned clockwise by 0,
// 90, 180 or 270 degrees.
func NewTurn(horizontal, vertical bool, degrees int) Turn {
	t := map[int]Turn{90: {Transpose: true, ReverseY: true}, 180: {ReverseX: true, ReverseY: true}, 270: {Transpose: true, ReverseX: true}}[degrees]
	t.ReverseX, t.ReverseY = t.ReverseX != horizontal, t.ReverseY != vertical
	return t
}

// Size returns the size of the picture of a frame.
func (t Turn) Size(width, height int) (int, int) {
	if t.Transpose {
		return height, width
	}
	return width, height
}

// Bits returns t as a number: bit 0 is ReverseX, bit 1 ReverseY, and bit 2 Transpose.
func (t Turn) Bits() (n int) {
	for i, is := range [3]bool{t.ReverseX, t.ReverseY, t.Transpose} {
		if is {
			n |= 1 << i
		}
	}
	return n
}

// Orientation returns the value of the tag Orientation (TIFF 6.0 §8) of a frame whose pictures are turned so.
func (t Turn) Orientation() int { return [8]int{1, 2, 4, 3, 5, 8, 6, 7}[t.Bits()] }

// Whole reports whether the picture's first line is known only when the last line of the frame is: such pictures cannot
// be handed on while the frame arrives.
func (t Turn) Whole() bool { return t.Transpose || t.ReverseY }

// tileColumns is the number of columns of the frame that a worker makes into lines of the picture at a time.
const tileColumns = 32

// turnScratch contains parts of lines of a transposed picture.
type turnScratch struct {
	lines [3][]line        // red, green and blue lines of the frame, in the order of the part's pixels, from pixel −1 on
	tile  [tileColumns]rgb // a part of a line for each column
}

func (t *turnScratch) resize(p *plan) {
	*t = turnScratch{}
	if !p.turn.Transpose {
		return
	}
	for i := range t.lines {
		t.lines[i] = make([]line, 0, bandLines+4)
	}
	for i := range t.tile {
		t.tile[i] = newRGB(bandLines, p)
	}
}

func (t *turnScratch) add(p *rgb) {
	for i, l := range [3]line{p.r, p.g, p.b} {
		t.lines[i] = append(t.lines[i], l)
	}
}

// finalLine returns line y of the frame as a line of the picture, unless the picture is transposed.
func (w *worker) finalLine(size, y int) *rgb {
	p := w.sharpLine(size, y)
	if !w.plan.turn.ReverseX {
		return p
	}
	q := &w.size[size]
	i := y % len(q.reversed)
	to := &q.reversed[i]
	if q.reversedY[i] != y {
		q.reversedY[i] = y
		reverseRow(to.g, p.g, q.width)
		if !w.plan.levels.mono {
			reverseRow(to.r, p.r, q.width)
			reverseRow(to.b, p.b, q.width)
		}
		to.mirror(q.width)
	}
	return to
}

// reverseRow reverses the order of n pixels.
func reverseRow(dst, src line, n int) {
	to, from := dst.at(0, n), src.at(0, n)
	for len(to) >= 4 {
		d, s := (*[4]uint16)(to), (*[4]uint16)(from[len(from)-4:])
		d[0], d[1], d[2], d[3] = s[3], s[2], s[1], s[0]
		to, from = to[4:], from[:len(from)-4]
	}
	for i := range to {
		to[i] = from[len(from)-1-i]
	}
}

// writeTransposed writes the lines of a size from line from to before line end, which are columns of the outputs.
func (w *worker) writeTransposed(size, from, end int) {
	q, turn, height := &w.size[size], w.plan.turn, w.plan.in.Height>>size
	n, x := end-from, from
	if n == 0 {
		return
	}
	if turn.ReverseY {
		x = height - end
	}
	t := &w.turned
	for i := range t.lines {
		t.lines[i] = t.lines[i][:0]
	}
	for i := -1; i < n; i++ {
		y := from + i
		if turn.ReverseY {
			y = end - 1 - i
		}
		t.add(w.sharpLine(size, reflect(y, height)))
	}
	for len(t.lines[0])%4 != 1 { // transposeRows takes four at a time
		t.add(w.sharpLine(size, from))
	}
	for c := 0; c < q.width; c += tileColumns {
		for i := 0; i < min(tileColumns, q.width-c); i += 4 {
			t.transpose(c, i, w.plan.levels.mono)
		}
		for i := range w.plan.outs {
			if o, out := &w.plan.outs[i], w.pass.outs[i]; out != nil && o.size == size {
				w.writeTile(o, out.Bytes, c, x, n)
			}
		}
	}
}

// transpose fills four lines of the tile, from line i on. Line 0 is column c of the frame.
func (t *turnScratch) transpose(c, i int, mono bool) {
	d := (*[4]rgb)(t.tile[i:])
	transposeRows([4]line{d[0].g, d[1].g, d[2].g, d[3].g}, t.lines[1], c+i)
	if !mono {
		transposeRows([4]line{d[0].r, d[1].r, d[2].r, d[3].r}, t.lines[0], c+i)
		transposeRows([4]line{d[0].b, d[1].b, d[2].b, d[3].b}, t.lines[2], c+i)
	}
}

// transposeRows makes four columns of lines, from column c on, into dst. The first of the lines, of which there are 4n+1,
// is for pixel −1.
func transposeRows(dst [4]line, lines []line, c int) {
	const first, third, half = 0x0000ffff0000ffff, 0xffff0000ffff0000, 1<<32 - 1
	c += margin
	for i, v := range lines[0][c:][:4] {
		dst[i][margin-1] = v
	}
	d0, d1, d2, d3 := dst[0], dst[1], dst[2], dst[3]
	lines = lines[1:]
	for j := 0; j+4 <= len(lines); j += 4 {
		p, q, r, s := four(lines[j], c), four(lines[j+1], c), four(lines[j+2], c), four(lines[j+3], c)
		// Pairs of neighbouring lines: columns 0 and 2, and columns 1 and 3.
		pq0, pq1 := p&first|q&first<<16, p>>16&first|q&third
		rs0, rs1 := r&first|s&first<<16, r>>16&first|s&third
		putFour(d0, margin+j, pq0&half|rs0<<32)
		putFour(d1, margin+j, pq1&half|rs1<<32)
		putFour(d2, margin+j, pq0>>32|rs0&^half)
		putFour(d3, margin+j, pq1>>32|rs1&^half)
	}
}

// four returns four samples from index i on, the first in the lowest bits.
func four(l line, i int) uint64 {
	p := l[i : i+4 : i+4]
	return uint64(p[0]) | uint64(p[1])<<16 | uint64(p[2])<<32 | uint64(p[3])<<48
}

// putFour is the reverse of four.
func putFour(l line, i int, v uint64) {
	p := l[i : i+4 : i+4]
	p[0], p[1], p[2], p[3] = uint16(v), uint16(v>>16), uint16(v>>32), uint16(v>>48)
}

// writeTile writes n pixels from pixel x on of the lines that the columns from c on are in an output.
func (w *worker) writeTile(o *output, dst []byte, c, x, n int) {
	columns := min(tileColumns, o.format.Height-c)
	planes := o.planes()
	for i := 0; i < columns; i++ {
		y := c + i
		if w.plan.turn.ReverseX {
			y = o.format.Height - 1 - y
		}
		switch p := &w.turned.tile[i]; {
		case !planes:
			w.writePacked(o, dst, p, part{x, y, n})
		case y&1 == 0:
			w.write420(o, dst, [2]*rgb{p, &w.turned.tile[i^1]}, part{x, y, n})
		}
	}
}
