// SPDX-License-Identifier: Apache-2.0

package isp

import "golang.org/x/sys/cpu"

// The vector versions of sharpen.go and of the 10-bit pixel groups. Counts are multiples of 16.

//go:noescape
func detailAVX2(dst, red, green, blue *uint16, n int)

// sharpenAVX2 is sharpenGo. weights are those of a sample, of the columns beside it, of its own column, and of 1.
//
//go:noescape
func sharpenAVX2(dst, src, y *[3]*uint16, n int, weights *[4]int16)

// uyvpAVX2 is uyvpGo, but also writes six bytes after the last group.
//
//go:noescape
func uyvpAVX2(dst *byte, y, c *uint16, n int)

func detailRow(dst []uint16, r, g, b []uint16) {
	if cpu.X86.HasAVX2 {
		detailAVX2(&dst[0], &r[0], &g[0], &b[0], roundUp16(len(dst)))
		return
	}
	detailGo(dst, r, g, b)
}

func sharpenRow(dst, src *rgb, y *[3]line, n int, s int32) {
	if !cpu.X86.HasAVX2 {
		sharpenGo(dst, src, y, n, s)
		return
	}
	k := int16(s)
	sharpenAVX2(
		&[3]*uint16{&dst.r[margin], &dst.g[margin], &dst.b[margin]}, &[3]*uint16{&src.r[margin], &src.g[margin], &src.b[margin]},
		&[3]*uint16{&y[0][margin], &y[1][margin], &y[2][margin]}, roundUp16(n), &[4]int16{16 * k, -k, -2 * k, 512},
	)
}

func uyvpRow(dst []byte, y, c []uint16) {
	n := 0
	if cpu.X86.HasAVX2 && len(y) >= 20 {
		n = (len(y) - 4) &^ 15 // the groups after that are written later
		uyvpAVX2(&dst[:n/2*5+6][0], &y[0], &c[:n][0], n)
	}
	uyvpGo(dst[n/2*5:], y[n:], c[n:])
}
