// SPDX-License-Identifier: Apache-2.0

package isp

import "golang.org/x/sys/cpu"

// hasColors reports whether vector versions of the kernels in columns.go are available here. Without them the short way
// is no faster.
func hasColors() bool { return cpu.X86.HasAVX2 }

// columnsAVX2 is columnsGo for a multiple of 32 pixels.
//
//go:noescape
func columnsAVX2(even, odd *uint16, src *byte, n int, a *columnsArgs)

// colorsAVX2 is colorsGo for the pixels from begin on, 32 at a time, until end is reached.
//
//go:noescape
func colorsAVX2(dst *byte, in *colorsLines, begin, end, odd int, c *byteCurve, w *weave)

// columnsAVX512 is columnsGo for a multiple of 64 pixels.
//
//go:noescape
func columnsAVX512(even, odd *uint16, src *byte, n int, a *columnsArgs)

// colorsAVX512 is colorsGo for a multiple of 64 pixels. Its table of the curve consists of words.
//
//go:noescape
func colorsAVX512(dst *byte, in *colorsLines, n, odd, blue int, c *wordCurve, w *weave)

// colorsVBMI is colorsAVX512 with a table of bytes.
//
//go:noescape
func colorsVBMI(dst *byte, in *colorsLines, n, odd int, c *byteCurve, w *weave)

// A weave describes how the bytes of the own colour, of green and of the third colour are combined to R' G' B'. The
// bytes come in pairs; the first of each pair is that of a pixel with the own colour.
type weave struct {
	shuffles [3][3][32]byte // three times 16 bytes, from 16 of each colour, in both halves of a vector
	pairs    [3][64]byte    // three times 64 bytes, from 64 of the own colour and 64 of green
	third    [3][64]byte    // three times 64 bytes, from 64 of the third colour
	masks    [3]uint64      // bit i is set if byte i is taken from third, not from pairs
	words    [3][32]uint16  // words[k][(3*i+k)%32] is i, because word i of colour k is written to place 3*i+k
	phase
}

func newWeave(p phase) *weave {
	w := &weave{phase: p}
	for i := range 32 {
		for k := range w.words {
			w.words[k][(3*i+k)%32] = uint16(i)
		}
	}
	source := func(at int) (color, pixel int) {
		if color = at % 3; p.blue == 1 {
			color = 2 - color
		}
		return color, at/3 ^ p.odd
	}
	for k := range 3 {
		for i := range 32 {
			for color := range 3 {
				w.shuffles[k][color][i] = 0x80
			}
			color, pixel := source(16*k + i%16)
			w.shuffles[k][color][i] = byte(pixel)
		}
		for i := range 64 {
			switch color, pixel := source(64*k + i); color {
			case 2:
				w.third[k][i] = byte(pixel)
				w.masks[k] |= 1 << i
			default:
				w.pairs[k][i] = byte(64*color + pixel)
			}
		}
	}
	return w
}

func columnsRow(dst *columns, src []byte, n int, a *columnsArgs) {
	v := 0
	if cpu.X86.HasAVX512BW && n >= 64 {
		v = n &^ 63
		columnsAVX512(&dst.even[margin], &dst.odd[margin], &src[:2*v][0], v, a)
	}
	if u := n &^ 31; cpu.X86.HasAVX2 && v < u {
		columnsAVX2(&dst.even[margin+v/2], &dst.odd[margin+v/2], &src[2*v : 2*u][0], u-v, a)
		v = u
	}
	rest := columns{dst.even[v/2:], dst.odd[v/2:]}
	columnsGo(&rest, src[2*v:], n-v, a)
}

func colorsRow(dst []byte, up, mid, down *columns, n int, w *weave, t *tone) {
	if !cpu.X86.HasAVX2 {
		colorsGo(dst, up, mid, down, n, w.phase, t)
		return
	}
	in := newColorsLines(up, mid, down, w.odd)
	v := 0
	switch m := n &^ 63; {
	case m == 0:
	case cpu.X86.HasAVX512VBMI:
		colorsVBMI(&dst[:3*m][0], &in, m, w.odd, t.bytes, w)
		v = m
	case cpu.X86.HasAVX512BW:
		colorsAVX512(&dst[:3*m][0], &in, m, w.odd, w.blue, t.words, w)
		v = m
	}
	if u := n &^ 31; v < u {
		colorsAVX2(&dst[3*v : 3*u][0], &in, v, u, w.odd, t.bytes, w)
		v = u
	}
	if v < n {
		var last [96]byte
		colorsAVX2(&last[0], &in, v, n, w.odd, t.bytes, w)
		copy(dst[3*v:3*n], last[:])
	}
}
