// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"encoding/binary"

	"github.com/tegracast/tegracast/pipeline"
)

// write writes line y of a size to the outputs; docs/isp.md §12. For 4:2:0 it writes two lines at every second one.
func (w *worker) write(size, y int) {
	for i := range w.plan.outs {
		o, out := &w.plan.outs[i], w.pass.outs[i]
		if out == nil || o.size != size {
			continue
		}
		if w.plan.colors {
			w.writeColors(o, out.Bytes, y)
			continue
		}
		switch o.format.Pixel {
		case pipeline.I420, pipeline.NV12:
			if y&1 == 1 {
				w.write420(o, out.Bytes, y-1)
			}
		default:
			w.writePacked(o, out.Bytes, y)
		}
	}
}

// writePacked writes a line whose pixels are all in one plane. If the output is packet-ready, it writes the line in
// pieces of one packet each.
func (w *worker) writePacked(o *output, dst []byte, y int) {
	n := o.format.Width
	p := w.sharpLine(o.size, y)
	switch o.format.Pixel {
	case pipeline.RGB24:
		w.writeRGB(o, dst, p, y)
		return
	case pipeline.UYVY, pipeline.UYVP:
		chroma422Row(w.output[1].at(0, n), p, n, &o.convert.chroma)
		fallthrough
	default:
		lumaRow(w.output[0].at(0, n), p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &o.convert.luma)
	}
	pixels := n / o.count
	for i := range o.count {
		to, x := o.piece(dst, y, i), i*pixels
		switch o.format.Pixel {
		case pipeline.UYVY:
			uyvyRow(to, w.output[0].at(x, pixels), w.output[1].at(x, pixels))
		case pipeline.UYVP:
			uyvpRow(to, w.output[0].at(x, pixels), w.output[1].at(x, pixels))
		case pipeline.Grey:
			narrowRow(to, w.output[0].at(x, pixels))
		}
	}
}

// writeRGB writes a line of RGB24.
func (w *worker) writeRGB(o *output, dst []byte, p *rgb, y int) {
	n, shift := o.format.Width, 4
	if a := o.convert.rgb; a != nil {
		shift = 0
		for i, c := range []line{p.r, p.g, p.b} {
			from, to := c.at(0, n), w.output[i].at(0, n)
			lumaRow(to, from, from, from, a)
		}
		p = &rgb{w.output[0], w.output[1], w.output[2]}
	}
	pixels := n / o.count
	for i := range o.count {
		x := i * pixels
		rgb24Row(o.piece(dst, y, i), p.r.at(x, pixels), p.g.at(x, pixels), p.b.at(x, pixels), shift)
	}
}

// piece returns the place in dst for piece i of line y.
func (o *output) piece(dst []byte, y, i int) []byte {
	if o.format.PacketPitch > 0 {
		return dst[(y*o.count+i)*o.format.PacketPitch+o.format.HeaderGap:][:o.payload]
	}
	return dst[y*o.format.Stride:][:o.payload]
}

// write420 writes lines y and y+1 and the chroma line that they share.
func (w *worker) write420(o *output, dst []byte, y int) {
	f := o.format
	n, stride := f.Width, f.Stride
	pair := [2]*rgb{w.sharpLine(o.size, y), w.sharpLine(o.size, y+1)}
	for i, p := range pair {
		lumaRow(w.output[0].at(0, n), p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &o.convert.luma)
		narrowRow(dst[(y+i)*stride:][:n], w.output[0].at(0, n))
	}
	chroma420Row(w.output[1].at(0, n), pair[0], pair[1], n, &o.convert.chroma)
	c, planes := w.output[1].at(0, n), dst[stride*f.Height:]
	if f.Pixel == pipeline.NV12 {
		narrowRow(planes[y/2*stride:][:n], c)
		return
	}
	cb := planes[y/2*(stride/2):][:n/2]
	cr := planes[(f.Height/2+y/2)*(stride/2):][:n/2]
	for i := range cb {
		q := (*[2]uint16)(c[2*i:])
		cb[i], cr[i] = uint8(q[0]), uint8(q[1])
	}
}

// uyvyGo writes Cb Y0 Cr Y1; c contains Cb and Cr alternately.
func uyvyGo(dst []byte, y, c []uint16) {
	c = c[:len(y)]
	for i, v := range y {
		binary.LittleEndian.PutUint16(dst[2*i:], v<<8|c[i])
	}
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

// narrowGo writes the lower byte of each value.
func narrowGo(dst []byte, src []uint16) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = byte(src[i])
	}
}
