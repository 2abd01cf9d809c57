// SPDX-License-Identifier: Apache-2.0

//go:build !amd64 && !arm64

package isp

func blackRow(dst []uint16, src []byte, a *blackArgs) { blackGo(dst, src, a) }

func gainRow(dst, src []uint16, a *gainArgs) { gainGo(dst, src, a) }

func linearRow(dst []uint16, src []byte, k *blackArgs, a *gainArgs) { linearGo(dst, src, k, a) }

func suspectsRow(dst, up, mid, down line, n, step int, threshold uint16) uint16 {
	return suspectsGo(dst, up, mid, down, n, step, threshold)
}

func uyvyRow(dst []byte, p *rgb, x, n int, c *conversion) { uyvyGo(dst, p, x, n, c) }

func bilinearRow(d *mosaicLine, up, mid, down line, n int) { bilinearGo(d, up, mid, down, n) }

func malvarRow(d *mosaicLine, rows *[5]line, n int) { malvarGo(d, rows, n) }

func matrixRow(r, g, b []uint16, m *[9]int16) { matrixGo(r, g, b, m) }

func toneRow(row []uint16, t *tone) { toneGo(row, &t.table) }

func lumaRow(dst, r, g, b []uint16, a *lumaArgs) { lumaGo(dst, r, g, b, a) }

func chroma422Row(dst []uint16, p *rgb, n int, a *chromaArgs) { chroma422Go(dst, p, n, a) }

func lumaBytesRow(dst []byte, r, g, b []uint16, a *lumaArgs) { lumaBytesGo(dst, r, g, b, a) }

func chroma420Row(cb, cr []byte, step int, p, q *rgb, n int, a *chromaArgs) {
	chroma420Go(cb, cr, step, p, q, 0, n, a)
}

func rgb24Row(dst []byte, r, g, b []uint16, shift int) { rgb24Go(dst, r, g, b, shift) }

func shadeRow(dst, src, upper, lower []uint16, weight *[2]int16) {
	shadeGo(dst, src, upper, lower, weight)
}

func detailRow(dst []uint16, r, g, b []uint16) { detailGo(dst, r, g, b) }

func sharpenRow(dst, src *rgb, y *[3]line, n int, s int32) { sharpenGo(dst, src, y, n, s) }

func uyvpRow(dst []byte, y, c []uint16) { uyvpGo(dst, y, c) }

func halfRow(even, green, odd, a, b []uint16) { halfGo(even, green, odd, a, b) }

func halfMonoRow(dst, a, b []uint16) { halfMonoGo(dst, a, b) }

func quarterRow(even, green, odd []uint16, lines *[4]line) { quarterGo(even, green, odd, lines) }

func quarterMonoRow(dst []uint16, lines *[4]line) { quarterMonoGo(dst, lines) }
