// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"encoding/binary"

	"github.com/tegracast/tegracast/pipeline"
)

// A part is n pixels of line y of an output, from pixel x on.
type part struct{ x, y, n int }

// write writes line y of a size to the outputs; docs/isp.md §12. For 4:2:0 it writes two lines at every second one.
func (w *worker) write(size, y int) {
	for i := range w.plan.outs {
		o, out := &w.plan.outs[i], w.pass.outs[i]
		if out == nil || o.size != size {
			continue
		}
		to := part{0, y, o.format.Width}
		if w.plan.turn.ReverseY {
			to.y = o.format.Height - 1 - y
		}
		switch {
		case w.plan.colors:
			w.writeColors(o, out.Bytes, y)
		case !o.planes():
			w.writePacked(o, out.Bytes, w.finalLine(size, y), to)
		case y&1 == 1:
			pair := [2]*rgb{w.finalLine(size, y-1), w.finalLine(size, y)}
			if w.plan.turn.ReverseY {
				pair[0], pair[1] = pair[1], pair[0]
			}
			to.y &^= 1
			w.write420(o, out.Bytes, pair, to)
		}
	}
}

// writePacked writes a part of a line whose pixels are all in one plane; p begins with it. If the output is packet-ready,
// it writes the part in pieces, each into one packet.
func (w *worker) writePacked(o *output, dst []byte, p *rgb, to part) {
	n := to.n
	switch o.format.Pixel {
	case pipeline.RGB24:
		w.writeRGB(o, dst, p, to)
		return
	case pipeline.UYVP:
		chroma422Row(w.output[1].at(0, n), p, n, &o.convert.chroma)
		lumaRow(w.output[0].at(0, n), p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &o.convert.luma)
	}
	for x := 0; x < n; {
		piece, k := o.piece(dst, to, x)
		switch o.format.Pixel {
		case pipeline.UYVY:
			uyvyRow(piece, p, x, k, &o.convert)
		case pipeline.UYVP:
			uyvpRow(piece, w.output[0].at(x, k), w.output[1].at(x, k))
		case pipeline.Grey:
			lumaBytesRow(piece, p.r.at(x, k), p.g.at(x, k), p.b.at(x, k), &o.convert.luma)
		}
		x += k
	}
}

// writeRGB writes a part of a line of RGB24.
func (w *worker) writeRGB(o *output, dst []byte, p *rgb, to part) {
	n, shift := to.n, 4
	if a := o.convert.rgb; a != nil {
		shift = 0
		for i, c := range []line{p.r, p.g, p.b} {
			from, to := c.at(0, n), w.output[i].at(0, n)
			lumaRow(to, from, from, from, a)
		}
		p = &rgb{w.output[0], w.output[1], w.output[2]}
	}
	for x := 0; x < n; {
		piece, k := o.piece(dst, to, x)
		rgb24Row(piece, p.r.at(x, k), p.g.at(x, k), p.b.at(x, k), shift)
		x += k
	}
}

// piece returns the place in dst for the pixels from pixel x of a part on, up to the end of the part or of the packet, and
// their number.
func (o *output) piece(dst []byte, to part, x int) ([]byte, int) {
	pixels := o.format.Width / o.count
	packet, skip := (to.x+x)/pixels, (to.x+x)%pixels
	n := min(pixels-skip, to.n-x)
	at := to.y*o.format.Stride + o.bytes(skip)
	if o.format.PacketPitch > 0 {
		at = (to.y*o.count+packet)*o.format.PacketPitch + o.format.HeaderGap + o.bytes(skip)
	}
	return dst[at:][:o.bytes(n)], n
}

// bytes returns the length of n pixels, which are a whole number of groups, in the first plane.
func (o *output) bytes(n int) int { return n * o.payload / (o.format.Width / o.count) }

// write420 writes a part of two lines, and of the chroma line that they share. to.y is even.
func (w *worker) write420(o *output, dst []byte, pair [2]*rgb, to part) {
	f, n := o.format, to.n
	for i, p := range pair {
		lumaBytesRow(dst[(to.y+i)*f.Stride+to.x:][:n], p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &o.convert.luma)
	}
	planes := dst[f.Stride*f.Height:]
	if f.Pixel == pipeline.NV12 {
		pairs := planes[to.y/2*f.Stride+to.x:][:n]
		chroma420Row(pairs, pairs[1:], 2, pair[0], pair[1], n, &o.convert.chroma)
		return
	}
	cb := planes[to.y/2*(f.Stride/2)+to.x/2:][:n/2]
	cr := planes[(f.Height/2+to.y/2)*(f.Stride/2)+to.x/2:][:n/2]
	chroma420Row(cb, cr, 1, pair[0], pair[1], n, &o.convert.chroma)
}

// uyvpGo writes the pixel groups of RFC 4175: 10 bits each of Cb Y0 Cr Y1, highest bit first.
func uyvpGo(dst []byte, y, c []uint16) {
	for len(y) >= 2 && len(c) >= 2 && len(dst) >= 5 {
		v := uint64(c[0])<<30 | uint64(y[0])<<20 | uint64(c[1])<<10 | uint64(y[1])
		dst[0] = byte(v >> 32)
		binary.BigEndian.PutUint32(dst[1:], uint32(v))
		dst, y, c = dst[5:], y[2:], c[2:]
	}
}

// rgb24Go writes R' G' B' for each pixel, divided by 2^shift and rounded.
func rgb24Go(dst []byte, r, g, b []uint16, shift int) {
	g, b = g[:len(r)], b[:len(r)]
	half := uint16(1) << shift >> 1
	for i, v := range r {
		d := (*[3]byte)(dst[3*i:])
		d[0], d[1], d[2] = byte((v+half)>>shift), byte((g[i]+half)>>shift), byte((b[i]+half)>>shift)
	}
}
