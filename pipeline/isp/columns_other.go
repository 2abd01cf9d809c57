// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package isp

// hasColors is false. On arm64 the long way to RGB24 is estimated to take 4.7 cycles a pixel of a Neoverse N1, and kernels
// of the short way took 5.0.
func hasColors() bool { return false }

func columnsRow(dst *columns, src []byte, n int, a *columnsArgs) { columnsGo(dst, src, n, a) }

type weave struct{ phase }

func newWeave(p phase) *weave { return &weave{p} }

func colorsRow(dst []byte, up, mid, down *columns, n int, w *weave, t *tone) {
	colorsGo(dst, up, mid, down, n, w.phase, t)
}
