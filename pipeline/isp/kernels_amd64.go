// SPDX-License-Identifier: Apache-2.0

package isp

import "golang.org/x/sys/cpu"

// The vector versions of kernels.go for AVX2, in kernels_amd64.s. A count n is a number of pixels and, unless otherwise
// stated, a multiple of 16. Pointers are to pixel 0.

//go:noescape
func blackAVX2(dst *uint16, src *byte, n int, a *blackArgs)

//go:noescape
func gainAVX2(dst, src *uint16, n int, a *gainArgs)

// linearAVX512 is linearGo for a multiple of 32 samples.
//
//go:noescape
func linearAVX512(dst *uint16, src *byte, n int, k *blackArgs, a *gainArgs)

//go:noescape
func suspectsAVX2(dst, up, mid, down *uint16, n, step int, threshold uint16) uint16

//go:noescape
func bilinearAVX2(own, green, other, up, mid, down *uint16, n, odd int)

// bilinearAVX512 is bilinearGo for a multiple of 32 pixels.
//
//go:noescape
func bilinearAVX512(own, green, other, up, mid, down *uint16, n, odd int)

//go:noescape
func malvarAVX2(own, green, other *uint16, rows *[5]*uint16, n int, k *malvarArgs, odd int)

//go:noescape
func matrixAVX2(red, green, blue *uint16, n int, m *[6][2]int16)

//go:noescape
func lumaAVX2(dst, red, green, blue *uint16, n int, a *lumaArgs)

//go:noescape
func chroma422AVX2(dst, red, green, blue *uint16, n int, a *chromaArgs)

//go:noescape
func lumaBytesAVX2(dst *byte, red, green, blue *uint16, n int, a *lumaArgs)

//go:noescape
func chroma420AVX2(cb, cr *byte, step int, p, q *[3]*uint16, n int, a *chromaArgs)

//go:noescape
func uyvyAVX2(dst *byte, red, green, blue *uint16, n int, y *lumaArgs, c *chromaArgs)

// toneAVX2 does what toneGo does, for a curve that has segments; n must be a multiple of 32.
//
//go:noescape
func toneAVX2(row *uint16, n int, c *signedCurve)

// toneAVX512 does what toneGo does, for a curve that has segments; n must be a multiple of 32.
//
//go:noescape
func toneAVX512(row *uint16, n int, c *signedCurve)

//go:noescape
func rgb24AVX2(dst *byte, red, green, blue *uint16, n, shift int)

// rgb24AVX512 is rgb24Go for a multiple of 64 pixels.
//
//go:noescape
func rgb24AVX512(dst *byte, red, green, blue *uint16, n, shift int)

//go:noescape
func shadeAVX2(dst, src, upper, lower *uint16, n int, weight *[2]int16)

// malvarArgs contains the weights of §6.2: four pairs for the first result and four for the second, each for the even
// and the odd pixels.
type malvarArgs [8][2][2]int16

// newMalvarArgs returns the weights of the pairs C and W+E, N+S and w+e, n+s and 1, NW+NE and SW+SE. The first result
// is green at the own colour, and the own colour at green.
func newMalvarArgs(odd int) malvarArgs {
	own := [8][2]int16{{8, 4}, {4, -2}, {-2, 8}, {0, 0}, {12, 0}, {0, -3}, {-3, 8}, {4, 4}}
	green := [8][2]int16{{10, 8}, {0, -2}, {1, 8}, {-2, -2}, {10, 0}, {8, 1}, {-2, 8}, {-2, -2}}
	var a malvarArgs
	for i := range a {
		a[i][odd], a[i][1-odd] = own[i], green[i]
	}
	return a
}

// roundUp16 returns n rounded up to whole vectors of 16 samples, for which lines have room.
func roundUp16(n int) int { return (n + 15) &^ 15 }

// roundUp32 is roundUp16 for vectors of 32 samples.
func roundUp32(n int) int { return (n + 31) &^ 31 }

func blackRow(dst []uint16, src []byte, a *blackArgs) {
	n := 0
	if cpu.X86.HasAVX2 && len(dst) >= 16 {
		n = len(dst) &^ 15
		blackAVX2(&dst[0], &src[:2*n][0], n, a)
	}
	blackGo(dst[n:], src[2*n:], a)
}

func gainRow(dst, src []uint16, a *gainArgs) {
	if cpu.X86.HasAVX2 {
		gainAVX2(&dst[0], &src[0], roundUp16(len(dst)), a)
		return
	}
	gainGo(dst, src, a)
}

func linearRow(dst []uint16, src []byte, k *blackArgs, a *gainArgs) {
	if !cpu.X86.HasAVX512BW {
		blackRow(dst, src, k)
		gainRow(dst, dst, a)
		return
	}
	n := len(dst) &^ 31
	if n > 0 {
		linearAVX512(&dst[0], &src[:2*n][0], n, k, a)
	}
	linearGo(dst[n:], src[2*n:], k, a)
}

func suspectsRow(dst, up, mid, down line, n, step int, threshold uint16) uint16 {
	if !cpu.X86.HasAVX2 {
		return suspectsGo(dst, up, mid, down, n, step, threshold)
	}
	v := n &^ 15 // marks after the last pixel would be wrong
	any := suspectsAVX2(&dst[margin], &up[margin], &mid[margin], &down[margin], v, step, threshold)
	return any | suspectsGo(dst[v:], up[v:], mid[v:], down[v:], n-v, step, threshold)
}

func bilinearRow(d *mosaicLine, up, mid, down line, n int) {
	switch {
	case cpu.X86.HasAVX512BW:
		bilinearAVX512(&d.own[margin], &d.green[margin], &d.other[margin], &up[margin], &mid[margin], &down[margin], roundUp32(n), d.odd)
	case cpu.X86.HasAVX2:
		bilinearAVX2(&d.own[margin], &d.green[margin], &d.other[margin], &up[margin], &mid[margin], &down[margin], roundUp16(n), d.odd)
	default:
		bilinearGo(d, up, mid, down, n)
	}
}

func malvarRow(d *mosaicLine, rows *[5]line, n int) {
	if !cpu.X86.HasAVX2 {
		malvarGo(d, rows, n)
		return
	}
	var at [5]*uint16
	for i, l := range rows {
		at[i] = &l[margin]
	}
	k := newMalvarArgs(d.odd)
	malvarAVX2(&d.own[margin], &d.green[margin], &d.other[margin], &at, roundUp16(n), &k, d.odd)
}

func matrixRow(r, g, b []uint16, m *[9]int16) {
	if cpu.X86.HasAVX2 {
		const half = gainOne / 2
		matrixAVX2(&r[0], &g[0], &b[0], roundUp16(len(r)), &[6][2]int16{{m[0], m[1]}, {m[2], half}, {m[3], m[4]}, {m[5], half}, {m[6], m[7]}, {m[8], half}})
		return
	}
	matrixGo(r, g, b, m)
}

func lumaRow(dst, r, g, b []uint16, a *lumaArgs) {
	if cpu.X86.HasAVX2 {
		lumaAVX2(&dst[0], &r[0], &g[0], &b[0], roundUp16(len(dst)), a)
		return
	}
	lumaGo(dst, r, g, b, a)
}

func chroma422Row(dst []uint16, p *rgb, n int, a *chromaArgs) {
	if cpu.X86.HasAVX2 {
		chroma422AVX2(&dst[0], &p.r[margin], &p.g[margin], &p.b[margin], roundUp16(n), a)
		return
	}
	chroma422Go(dst, p, n, a)
}

func lumaBytesRow(dst []byte, r, g, b []uint16, a *lumaArgs) {
	n := 0
	if cpu.X86.HasAVX2 && len(dst) >= 16 {
		n = len(dst) &^ 15
		lumaBytesAVX2(&dst[0], &r[:n][0], &g[:n][0], &b[:n][0], n, a)
	}
	lumaBytesGo(dst[n:], r[n:], g[n:], b[n:], a)
}

func chroma420Row(cb, cr []byte, step int, p, q *rgb, n int, a *chromaArgs) {
	v := 0
	if cpu.X86.HasAVX2 {
		v = n &^ 15
	}
	if v > 0 {
		_, _ = cb[v/2*step-step], cr[v/2*step-step] // the last of each
		chroma420AVX2(
			&cb[0], &cr[0], step, &[3]*uint16{&p.r[margin], &p.g[margin], &p.b[margin]}, &[3]*uint16{&q.r[margin], &q.g[margin], &q.b[margin]}, v, a,
		)
	}
	chroma420Go(cb, cr, step, p, q, v, n, a)
}

func uyvyRow(dst []byte, p *rgb, x, n int, c *conversion) {
	if !cpu.X86.HasAVX2 {
		uyvyGo(dst, p, x, n, c)
		return
	}
	r, g, b := p.r[margin+x:], p.g[margin+x:], p.b[margin+x:]
	v := n &^ 15
	if v > 0 {
		uyvyAVX2(&dst[:2*v][0], &r[0], &g[0], &b[0], v, &c.luma, &c.chroma)
	}
	if v < n {
		var last [32]byte
		uyvyAVX2(&last[0], &r[v], &g[v], &b[v], 16, &c.luma, &c.chroma)
		copy(dst[2*v:2*n], last[:])
	}
}

func rgb24Row(dst []byte, r, g, b []uint16, shift int) {
	n := 0
	if cpu.X86.HasAVX512VBMI && len(r) >= 64 {
		n = len(r) &^ 63
		rgb24AVX512(&dst[:3*n][0], &r[0], &g[:n][0], &b[:n][0], n, shift)
	}
	if m := (len(r) - n) &^ 15; cpu.X86.HasAVX2 && m > 0 {
		rgb24AVX2(&dst[3*n:][:3*m][0], &r[n], &g[n:][:m][0], &b[n:][:m][0], m, shift)
		n += m
	}
	rgb24Go(dst[3*n:], r[n:], g[n:], b[n:], shift)
}

func toneRow(row []uint16, t *tone) {
	n := roundUp32(len(row))
	switch {
	case t.signed != nil && cpu.X86.HasAVX512BW:
		toneAVX512(&row[0], n, t.signed)
	case t.signed != nil && cpu.X86.HasAVX2:
		toneAVX2(&row[0], n, t.signed)
	default:
		toneGo(row, &t.table)
	}
}

func shadeRow(dst, src, upper, lower []uint16, weight *[2]int16) {
	if cpu.X86.HasAVX2 {
		shadeAVX2(&dst[0], &src[0], &upper[0], &lower[0], roundUp16(len(dst)), weight)
		return
	}
	shadeGo(dst, src, upper, lower, weight)
}
