// SPDX-License-Identifier: Apache-2.0

package isp

// The vector versions of sharpen.go and of the 10-bit pixel groups. Counts are multiples of 16.

//go:noescape
func detailNEON(dst, red, green, blue *uint16, n int)

//go:noescape
func sharpenNEON(dst, src, y *[3]*uint16, n, s int)

// uyvpNEON is uyvpGo, but also writes six bytes after the last group.
//
//go:noescape
func uyvpNEON(dst *byte, y, c *uint16, n int)

func detailRow(dst []uint16, r, g, b []uint16) {
	detailNEON(&dst[0], &r[0], &g[0], &b[0], roundUp16(len(dst)))
}

func sharpenRow(dst, src *rgb, y *[3]line, n int, s int32) {
	sharpenNEON(
		&[3]*uint16{&dst.r[margin], &dst.g[margin], &dst.b[margin]}, &[3]*uint16{&src.r[margin], &src.g[margin], &src.b[margin]},
		&[3]*uint16{&y[0][margin], &y[1][margin], &y[2][margin]}, roundUp16(n), int(s),
	)
}

func uyvpRow(dst []byte, y, c []uint16) {
	n := 0
	if len(y) >= 20 {
		n = (len(y) - 4) &^ 15 // the groups after that are written later
		uyvpNEON(&dst[:n/2*5+6][0], &y[0], &c[:n][0], n)
	}
	uyvpGo(dst[n/2*5:], y[n:], c[n:])
}
