// SPDX-License-Identifier: Apache-2.0

package isp

// The vector versions of kernels.go for NEON, which every arm64 has, in kernels_arm64.s. A count n is a number of
// pixels and a multiple of 16. Pointers are to pixel 0.

//go:noescape
func blackNEON(dst *uint16, src *byte, n int, a *blackArgs)

//go:noescape
func gainNEON(dst, src *uint16, n int, a *gainArgs)

// linearNEON is linearGo for samples of at most 15 bits. They are shifted to the left, up to 2^15-1, and multiplied by m/2^15.
//
//go:noescape
func linearNEON(dst *uint16, src *byte, n int, k *blackArgs, m *[2]uint16, shift *[2]int16)

//go:noescape
func suspectsNEON(dst, up, mid, down *uint16, n, step int, threshold uint16) uint16

//go:noescape
func bilinearNEON(own, green, other, up, mid, down *uint16, n int)

//go:noescape
func malvarNEON(own, green, other *uint16, rows *[5]*uint16, n int)

//go:noescape
func matrixNEON(red, green, blue *uint16, n int, m *[9]int16)

//go:noescape
func lumaNEON(dst, red, green, blue *uint16, n int, a *lumaArgs)

//go:noescape
func chroma422NEON(dst, red, green, blue *uint16, n int, a *chromaArgs)

//go:noescape
func lumaBytesNEON(dst *byte, red, green, blue *uint16, n int, a *lumaArgs)

//go:noescape
func chroma420NEON(cb, cr *byte, step int, p, q *[3]*uint16, n int, a *chromaArgs)

//go:noescape
func uyvyNEON(dst *byte, red, green, blue *uint16, n int, y *lumaArgs, c *chromaArgs)

//go:noescape
func rgb24NEON(dst *byte, red, green, blue *uint16, n, shift int)

//go:noescape
func toneNEON(row *uint16, n int, c *signedCurve)

//go:noescape
func shadeNEON(dst, src, upper, lower *uint16, n int, weight *[2]int16)

// roundUp16 returns n rounded up to whole vectors of 16 samples, for which lines have room.
func roundUp16(n int) int { return (n + 15) &^ 15 }

func blackRow(dst []uint16, src []byte, a *blackArgs) {
	n := len(dst) &^ 15
	if n > 0 {
		blackNEON(&dst[0], &src[:2*n][0], n, a)
	}
	blackGo(dst[n:], src[2*n:], a)
}

func gainRow(dst, src []uint16, a *gainArgs) { gainNEON(&dst[0], &src[0], roundUp16(len(dst)), a) }

func linearRow(dst []uint16, src []byte, k *blackArgs, a *gainArgs) {
	var shift [2]int16
	fits := k.mask < 1<<15
	for i := range shift {
		shift[i] = int16(k.shift) + 15 - int16(a.n[i])
		fits = fits && shift[i] >= 0 && a.m[i] >= 1<<14 // with less, 2^15-1 would not become white
	}
	if !fits { // 16 bits, or a gain far below 1
		blackRow(dst, src, k)
		gainRow(dst, dst, a)
		return
	}
	n := len(dst) &^ 15
	if n > 0 {
		linearNEON(&dst[0], &src[:2*n][0], n, k, &a.m, &shift)
	}
	linearGo(dst[n:], src[2*n:], k, a)
}

func suspectsRow(dst, up, mid, down line, n, step int, threshold uint16) uint16 {
	v := n &^ 15 // marks after the last pixel would be wrong
	any := suspectsNEON(&dst[margin], &up[margin], &mid[margin], &down[margin], v, step, threshold)
	return any | suspectsGo(dst[v:], up[v:], mid[v:], down[v:], n-v, step, threshold)
}

func bilinearRow(d *mosaicLine, up, mid, down line, n int) {
	first := margin - d.odd // the kernel begins with a pixel of the own colour
	bilinearNEON(&d.own[first], &d.green[first], &d.other[first], &up[first], &mid[first], &down[first], roundUp16(n+d.odd))
}

func malvarRow(d *mosaicLine, rows *[5]line, n int) {
	first := margin - d.odd // as in bilinearRow
	var at [5]*uint16
	for i, l := range rows {
		at[i] = &l[first]
	}
	malvarNEON(&d.own[first], &d.green[first], &d.other[first], &at, roundUp16(n+d.odd))
}

func matrixRow(r, g, b []uint16, m *[9]int16) { matrixNEON(&r[0], &g[0], &b[0], roundUp16(len(r)), m) }

func lumaRow(dst, r, g, b []uint16, a *lumaArgs) {
	lumaNEON(&dst[0], &r[0], &g[0], &b[0], roundUp16(len(dst)), a)
}

func chroma422Row(dst []uint16, p *rgb, n int, a *chromaArgs) {
	chroma422NEON(&dst[0], &p.r[margin], &p.g[margin], &p.b[margin], roundUp16(n), a)
}

func lumaBytesRow(dst []byte, r, g, b []uint16, a *lumaArgs) {
	n := len(dst) &^ 15
	if n > 0 {
		lumaBytesNEON(&dst[0], &r[:n][0], &g[:n][0], &b[:n][0], n, a)
	}
	lumaBytesGo(dst[n:], r[n:], g[n:], b[n:], a)
}

func chroma420Row(cb, cr []byte, step int, p, q *rgb, n int, a *chromaArgs) {
	v := n &^ 15
	if v > 0 {
		_, _ = cb[v/2*step-step], cr[v/2*step-step] // the last of each
		chroma420NEON(
			&cb[0], &cr[0], step, &[3]*uint16{&p.r[margin], &p.g[margin], &p.b[margin]}, &[3]*uint16{&q.r[margin], &q.g[margin], &q.b[margin]}, v, a,
		)
	}
	chroma420Go(cb, cr, step, p, q, v, n, a)
}

func uyvyRow(dst []byte, p *rgb, x, n int, c *conversion) {
	r, g, b := p.r[margin+x:], p.g[margin+x:], p.b[margin+x:]
	v := n &^ 15
	if v > 0 {
		uyvyNEON(&dst[:2*v][0], &r[0], &g[0], &b[0], v, &c.luma, &c.chroma)
	}
	if v < n {
		var last [32]byte
		uyvyNEON(&last[0], &r[v], &g[v], &b[v], 16, &c.luma, &c.chroma)
		copy(dst[2*v:2*n], last[:])
	}
}

func rgb24Row(dst []byte, r, g, b []uint16, shift int) {
	n := 0
	if len(r) >= 16 {
		n = len(r) &^ 15
		rgb24NEON(&dst[:3*n][0], &r[0], &g[:n][0], &b[:n][0], n, shift)
	}
	rgb24Go(dst[3*n:], r[n:], g[n:], b[n:], shift)
}

func toneRow(row []uint16, t *tone) {
	if t.signed == nil {
		toneGo(row, &t.table)
		return
	}
	toneNEON(&row[0], roundUp16(len(row)), t.signed)
}

func shadeRow(dst, src, upper, lower []uint16, weight *[2]int16) {
	shadeNEON(&dst[0], &src[0], &upper[0], &lower[0], roundUp16(len(dst)), weight)
}
