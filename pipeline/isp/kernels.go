// SPDX-License-Identifier: Apache-2.0

package isp

import "encoding/binary"

// Kernels in plain Go. They define what the vector kernels do. Lines of samples are uint16 with margins before pixel 0
// and after the last pixel, so that neighbours need no special cases and vector kernels may work on whole vectors; what
// those write after pixel n is undefined. Parameters that alternate from pixel to pixel are pairs, for the even and the
// odd pixels.

// margin is the number of samples before pixel 0 in a line.
const margin = 32 // so that pixel 0 is at the start of a cache line

// A line holds pixel x at index margin+x.
type line []uint16

func newLine(width int) line { return make(line, margin+(width+31)/32*32+32) }

// at returns n samples from pixel x on; they may be in the margins.
func (l line) at(x, n int) []uint16 { return l[margin+x:][:n:n] }

// mirror fills in two pixels beyond each end of a line of n pixels; docs/isp.md §1.
func (l line) mirror(n int) {
	for i := 1; i <= 2; i++ {
		l[margin-i] = l[margin+reflect(-i, n)]
		l[margin+n-1+i] = l[margin+reflect(n-1+i, n)]
	}
}

// reflect mirrors a coordinate at the outermost samples into the range 0 to n-1.
func reflect(i, n int) int {
	for i < 0 || i >= n {
		if i < 0 {
			i = -i
		} else {
			i = 2*(n-1) - i
		}
	}
	return i
}

// blackArgs contains the mask and the shift of the samples, and the black levels of even and odd pixels.
type blackArgs struct {
	mask  uint16
	shift uint16
	black [2]uint16
}

// blackGo subtracts the black level from little-endian words and shifts the result to the upper bits; §2.
func blackGo(dst []uint16, src []byte, a *blackArgs) {
	for x := range dst {
		s := binary.LittleEndian.Uint16(src[2*x:]) & a.mask
		k := a.black[x&1]
		dst[x] = (max(s, k) - k) << a.shift
	}
}

// gainArgs contains the factor m/2^n, and half of 2^n, for even and odd pixels.
type gainArgs struct {
	m    [2]uint16
	n    [2]uint32
	half [2]uint32
}

// gainGo makes linear samples; §5.
func gainGo(dst, src []uint16, a *gainArgs) {
	for x, v := range src[:len(dst)] {
		dst[x] = uint16(min((uint32(v)*uint32(a.m[x&1])+a.half[x&1])>>a.n[x&1], linearMax))
	}
}

// linearGo makes linear samples from little-endian words: black level and then gain, with no steps in between.
func linearGo(dst []uint16, src []byte, k *blackArgs, a *gainArgs) {
	blackGo(dst, src, k)
	gainGo(dst, dst, a)
}

// suspectsGo marks, with values other than 0, the pixels that are above or below all their neighbours at a distance of
// step pixels by more than the threshold; §3. up and down are the lines step above and below. It returns the OR of all
// marks.
func suspectsGo(dst, up, mid, down line, n, step int, threshold uint16) uint16 {
	var any uint16
	for x := margin; x < margin+n; x++ {
		lo, hi := mid[x-step], mid[x-step]
		for _, v := range [...]uint16{mid[x+step], up[x-step], up[x], up[x+step], down[x-step], down[x], down[x+step]} {
			lo, hi = min(lo, v), max(hi, v)
		}
		c := mid[x]
		over := max(c, hi) - hi
		under := max(lo, c) - c
		dst[x] = (max(over, threshold) - threshold) | (max(under, threshold) - threshold)
		any |= dst[x]
	}
	return any
}

// A mosaicLine holds the samples of one colour, red or blue, at the even or at the odd pixels, and green samples in
// between. own, green and other are the results for that colour, for green, and for the third colour.
type mosaicLine struct {
	own, green, other line
	odd               int // 1 if the colour is at the odd pixels
}

// bilinearGo implements §6.1.
func bilinearGo(d *mosaicLine, up, mid, down line, n int) {
	for x := margin; x < margin+n; x++ {
		w, c, e := uint32(mid[x-1]), mid[x], uint32(mid[x+1])
		v := uint32(up[x]) + uint32(down[x])
		if x&1 == d.odd {
			diagonal := uint32(up[x-1]) + uint32(up[x+1]) + uint32(down[x-1]) + uint32(down[x+1])
			d.own[x], d.green[x], d.other[x] = c, uint16((w+e+v+2)>>2), uint16((diagonal+2)>>2)
		} else {
			d.own[x], d.green[x], d.other[x] = uint16((w+e+1)>>1), c, uint16((v+1)>>1)
		}
	}
}

// malvarGo implements §6.2; rows are the lines from two above to two below.
func malvarGo(d *mosaicLine, rows *[5]line, n int) {
	up2, up, mid, down, down2 := rows[0], rows[1], rows[2], rows[3], rows[4]
	for x := margin; x < margin+n; x++ {
		c := int32(mid[x])
		h1, h2 := int32(mid[x-1])+int32(mid[x+1]), int32(mid[x-2])+int32(mid[x+2])
		v1, v2 := int32(up[x])+int32(down[x]), int32(up2[x])+int32(down2[x])
		diagonal := int32(up[x-1]) + int32(up[x+1]) + int32(down[x-1]) + int32(down[x+1])
		if x&1 == d.odd {
			d.own[x] = mid[x]
			d.green[x] = clip((8*c + 4*(h1+v1) - 2*(h2+v2) + 8) >> 4)
			d.other[x] = clip((12*c + 4*diagonal - 3*(h2+v2) + 8) >> 4)
		} else {
			d.own[x] = clip((10*c + 8*h1 - 2*(diagonal+h2) + v2 + 8) >> 4)
			d.green[x] = mid[x]
			d.other[x] = clip((10*c + 8*v1 - 2*(diagonal+v2) + h2 + 8) >> 4)
		}
	}
}

func clip(v int32) uint16 { return uint16(min(max(v, 0), linearMax)) }

// matrixGo implements §7.
func matrixGo(r, g, b []uint16, m *[9]int16) {
	g, b = g[:len(r)], b[:len(r)]
	for x := range r {
		v := [3]int32{int32(r[x]), int32(g[x]), int32(b[x])}
		dot := func(i int) uint16 {
			return clip((int32(m[i])*v[0] + int32(m[i+1])*v[1] + int32(m[i+2])*v[2] + gainOne/2) >> 12)
		}
		r[x], g[x], b[x] = dot(0), dot(3), dot(6)
	}
}

// toneGo replaces each value of row by its entry in the tone curve t; §8.
func toneGo(row []uint16, t *[linearMax + 1]uint16) {
	for len(row) >= 4 {
		q := (*[4]uint16)(row)
		q[0], q[1], q[2], q[3] = t[q[0]&linearMax], t[q[1]&linearMax], t[q[2]&linearMax], t[q[3]&linearMax]
		row = row[4:]
	}
	for i := range row {
		row[i] = t[row[i]&linearMax]
	}
}

// lumaArgs and chromaArgs contain coefficients of R', G', B' and 0, offset and shift; §10.
type lumaArgs struct {
	c      [4]int16
	offset int32
	shift  int32
}

type chromaArgs struct {
	cb, cr [4]int16
	offset int32
	shift  int32
}

func (a *lumaArgs) convert(r, g, b uint16) uint16 {
	return uint16((int32(r)*int32(a.c[0]) + int32(g)*int32(a.c[1]) + int32(b)*int32(a.c[2]) + a.offset) >> a.shift)
}

// lumaGo writes the luma of each pixel.
func lumaGo(dst, r, g, b []uint16, a *lumaArgs) {
	r, g, b = r[:len(dst)], g[:len(dst)], b[:len(dst)]
	for x := range dst {
		dst[x] = a.convert(r[x], g[x], b[x])
	}
}

// lumaBytesGo writes the luma of each pixel, of 8 bits, as a byte.
func lumaBytesGo(dst []byte, r, g, b []uint16, a *lumaArgs) {
	r, g, b = r[:len(dst)], g[:len(dst)], b[:len(dst)]
	for x := range dst {
		dst[x] = byte(a.convert(r[x], g[x], b[x]))
	}
}

func (a *chromaArgs) convert(r, g, b int32) (cb, cr uint16) {
	cb = uint16((r*int32(a.cb[0]) + g*int32(a.cb[1]) + b*int32(a.cb[2]) + a.offset) >> a.shift)
	cr = uint16((r*int32(a.cr[0]) + g*int32(a.cr[1]) + b*int32(a.cr[2]) + a.offset) >> a.shift)
	return cb, cr
}

// An rgb is a line of three colours.
type rgb struct{ r, g, b line }

// convert422 returns Cb and Cr of pixel x, which is even.
func (a *chromaArgs) convert422(p *rgb, x int) (cb, cr uint16) {
	sum := func(l line) int32 { return int32(l[margin+x-1]) + 2*int32(l[margin+x]) + int32(l[margin+x+1]) }
	return a.convert(sum(p.r), sum(p.g), sum(p.b))
}

// chroma422Go writes a pair Cb, Cr for every two of n pixels.
func chroma422Go(dst []uint16, p *rgb, n int, a *chromaArgs) {
	for x := 0; x < n; x += 2 {
		dst[x], dst[x+1] = a.convert422(p, x)
	}
}

// uyvyGo writes Cb Y0 Cr Y1, of 8 bits, for every two of n pixels from pixel x on.
func uyvyGo(dst []byte, p *rgb, x, n int, c *conversion) {
	luma := func(x int) byte { return byte(c.luma.convert(p.r[margin+x], p.g[margin+x], p.b[margin+x])) }
	for i := 0; i < n; i += 2 {
		cb, cr := c.chroma.convert422(p, x+i)
		*(*[4]byte)(dst[2*i:]) = [4]byte{byte(cb), luma(x + i), byte(cr), luma(x + i + 1)}
	}
}

// chroma420Go writes Cb and Cr, of 8 bits, for every 2 x 2 of the pixels x to before n of the lines p and q. cb and cr
// are their places for pixel 0; step is 1, or 2 if they take turns.
func chroma420Go(cb, cr []byte, step int, p, q *rgb, x, n int, a *chromaArgs) {
	sum := func(l, m line, x int) int32 { return int32(l[x]) + int32(l[x+1]) + int32(m[x]) + int32(m[x+1]) }
	for ; x < n; x += 2 {
		i := margin + x
		u, v := a.convert(sum(p.r, q.r, i), sum(p.g, q.g, i), sum(p.b, q.b, i))
		cb[x/2*step], cr[x/2*step] = byte(u), byte(v)
	}
}
