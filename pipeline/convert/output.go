// SPDX-License-Identifier: Apache-2.0

package convert

import "github.com/tegracast/tegracast/pipeline"

// An output is one wanted format, and how its lines are made.
type output struct {
	format  pipeline.Format
	by      int  // the picture is so many times smaller
	same    bool // it has the input's colours
	matrix  matrix
	rgb     [3][4]int32 // rows of R', G' and B', as in matrix
	payload int         // bytes of a line between two header gaps; the whole line in plain memory
}

// scratch is the memory of one worker.
type scratch struct {
	room  row        // of the input's width
	sums  [3][]int32 // of the samples of a smaller row
	rows  [2]row     // two lines of the output
	bytes []byte     // a packed line
}

func newScratch(width int) *scratch {
	s := &scratch{room: newRow(width), rows: [2]row{newRow(width), newRow(width)}, bytes: make([]byte, 3*width)}
	for i := range s.sums {
		s.sums[i] = make([]int32, width)
	}
	return s
}

// makePair makes lines 2i and 2i+1.
func (o *output) makePair(w *scratch, p picture, i int, to []byte) {
	for k := range 2 {
		r := o.narrow(&w.rows[k])
		if line := o.shrink(w, p, 2*i+k, r); o.same {
			copy(r.y, line.y)
			copy(r.cb, line.cb)
			copy(r.cr, line.cr)
		} else {
			o.matrix.convert(r, line)
		}
		switch o.format.Pixel {
		case pipeline.UYVY:
			packUYVY(w.bytes, r)
			o.write(to, 2*i+k, w.bytes)
		case pipeline.RGB24:
			packRGB(w.bytes, r, &o.rgb)
			o.write(to, 2*i+k, w.bytes)
		case pipeline.Grey:
			o.write(to, 2*i+k, r.y)
		default:
			copy(to[(2*i+k)*o.format.Stride:], r.y)
		}
	}
	o.writeChroma(w, i, to)
}

// narrow returns the part of a row that has the output's width.
func (o *output) narrow(r *row) row {
	n := o.format.Width
	return row{r.y[:n], r.cb[:n/2], r.cr[:n/2]}
}

// shrink returns line y of the picture at the output's size, in the input's colours. It may use to.
func (o *output) shrink(w *scratch, p picture, y int, to row) row {
	if o.by == 1 {
		return p.line(y, w.room)
	}
	clear(w.sums[0][:len(to.y)])
	clear(w.sums[1][:len(to.cb)])
	clear(w.sums[2][:len(to.cr)])
	for k := range o.by {
		from := p.line(y*o.by+k, w.room)
		add(w.sums[0][:len(to.y)], from.y, o.by)
		add(w.sums[1][:len(to.cb)], from.cb, o.by)
		add(w.sums[2][:len(to.cr)], from.cr, o.by)
	}
	n := int32(o.by * o.by)
	for i, plane := range [][]byte{to.y, to.cb, to.cr} {
		for x, sum := range w.sums[i][:len(plane)] {
			plane[x] = byte((sum + n/2) / n)
		}
	}
	return to
}

// add adds the sums of each by samples.
func add(sums []int32, samples []byte, by int) {
	for i := range sums {
		for _, v := range samples[i*by:][:by] {
			sums[i] += int32(v)
		}
	}
}

// write writes a line to plain or packet-ready memory.
func (o *output) write(to []byte, y int, line []byte) {
	size := o.format.Pixel.LineBytes(o.format.Width)
	if o.format.PacketPitch == 0 {
		copy(to[y*o.format.Stride:], line[:size])
		return
	}
	count := size / o.payload
	for i := range count {
		copy(to[(y*count+i)*o.format.PacketPitch+o.format.HeaderGap:], line[i*o.payload:][:o.payload])
	}
}

// writeChroma writes the chroma of a pair of lines, if that lies in a plane.
func (o *output) writeChroma(w *scratch, i int, to []byte) {
	a, b := o.narrow(&w.rows[0]), o.narrow(&w.rows[1])
	stride, luma := o.format.Stride, o.format.Stride*o.format.Height
	mean := func(a, b byte) byte { return byte((int(a) + int(b) + 1) / 2) }
	switch o.format.Pixel {
	case pipeline.NV12:
		line := to[luma+i*stride:]
		for x := range a.cb {
			line[2*x], line[2*x+1] = mean(a.cb[x], b.cb[x]), mean(a.cr[x], b.cr[x])
		}
	case pipeline.I420:
		cb, cr := to[luma+i*stride/2:], to[luma+luma/4+i*stride/2:]
		for x := range a.cb {
			cb[x], cr[x] = mean(a.cb[x], b.cb[x]), mean(a.cr[x], b.cr[x])
		}
	}
}

func packUYVY(to []byte, r row) {
	for i, cb := range r.cb {
		q := (*[4]byte)(to[4*i:])
		q[0], q[1], q[2], q[3] = cb, r.y[2*i], r.cr[i], r.y[2*i+1]
	}
}

func packRGB(to []byte, r row, m *[3][4]int32) {
	for i, cb := range r.cb {
		u, v := int32(cb)-128, int32(r.cr[i])-128
		q := (*[6]byte)(to[6*i:])
		for c := range m {
			chroma := m[c][1]*u + m[c][2]*v + m[c][3] + half
			q[c] = clamp((m[c][0]*int32(r.y[2*i]) + chroma) >> bits)
			q[3+c] = clamp((m[c][0]*int32(r.y[2*i+1]) + chroma) >> bits)
		}
	}
}
