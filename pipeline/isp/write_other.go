// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package isp

// writeUYVY writes a part of a line of UYVY.
func (w *worker) writeUYVY(o *output, dst []byte, p *rgb, to part) {
	n := to.n
	chroma422Row(w.output[1].at(0, n), p, n, &o.convert.chroma)
	lumaRow(w.output[0].at(0, n), p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &o.convert.luma)
	for x := 0; x < n; {
		piece, k := o.piece(dst, to, x)
		uyvyRow(piece, w.output[0].at(x, k), w.output[1].at(x, k))
		x += k
	}
}
