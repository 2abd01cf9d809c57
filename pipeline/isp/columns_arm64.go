// SPDX-License-Identifier: Apache-2.0

package isp

//go:noescape
func columnsNEON(even, odd *uint16, src *byte, n int, a *columnsArgs)

//go:noescape
func colorsNEON(dst *byte, in *colorsLines, n, odd, blue int, c *byteCurve)

func hasColors() bool { return true }

// A weave describes in which order colours and pixels are written.
type weave struct{ phase }

func newWeave(p phase) *weave { return &weave{p} }

func columnsRow(dst *columns, src []byte, n int, a *columnsArgs) {
	v := n &^ 15
	if v > 0 {
		columnsNEON(&dst.even[margin], &dst.odd[margin], &src[:2*v][0], v, a)
	}
	rest := columns{dst.even[v/2:], dst.odd[v/2:]}
	columnsGo(&rest, src[2*v:], n-v, a)
}

func colorsRow(dst []byte, up, mid, down *columns, n int, w *weave, t *tone) {
	v := n &^ 15
	if v > 0 {
		in := newColorsLines(up, mid, down, w.odd)
		colorsNEON(&dst[:3*v][0], &in, v, w.odd, w.blue, t.bytes)
	}
	if v < n {
		var last [48]byte
		in := newColorsLines(up, mid, down, v+w.odd)
		colorsNEON(&last[0], &in, 16, w.odd, w.blue, t.bytes)
		copy(dst[3*v:3*n], last[:])
	}
}
