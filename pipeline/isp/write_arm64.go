// SPDX-License-Identifier: Apache-2.0

package isp

// uyvyNEON converts n pixels, a multiple of 16, with the arguments for 8 bits.
//
//go:noescape
func uyvyNEON(dst *byte, red, green, blue *uint16, n int, y *lumaArgs, c *chromaArgs)

// writeUYVY writes a part of a line of UYVY.
func (w *worker) writeUYVY(o *output, dst []byte, p *rgb, to part) {
	for x := 0; x < to.n; {
		piece, n := o.piece(dst, to, x)
		r, g, b := p.r[margin+x:], p.g[margin+x:], p.b[margin+x:]
		v := n &^ 15
		if v > 0 {
			uyvyNEON(&piece[:2*v][0], &r[0], &g[0], &b[0], v, &o.convert.luma, &o.convert.chroma)
		}
		if v < n {
			var last [32]byte
			uyvyNEON(&last[0], &r[v], &g[v], &b[v], 16, &o.convert.luma, &o.convert.chroma)
			copy(piece[2*v:2*n], last[:])
		}
		x += n
	}
}
