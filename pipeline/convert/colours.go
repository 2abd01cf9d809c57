// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"math"

	"github.com/tegracast/tegracast/pipeline"
)

// Factors are in units of 1/2^bits.
const (
	bits = 14
	half = 1 << (bits - 1)
)

func clamp(v int32) byte { return byte(max(0, min(v, 255))) }

// colours are the numbers that define Y'CbCr of 8 bits: the shares of R' and B' in luma, and the ranges.
type colours struct{ kr, kb, black, luma, chroma float64 }

func coloursOf(c pipeline.Colorimetry) (d colours) {
	d.kr, d.kb = c.Luma()
	d.black, d.luma, d.chroma = c.Range()
	return d
}

// The matrix from R'G'B' to Y'CbCr of BT.709 at full range (BT.709 §3).
var (
	rgbLuma = fixed3(0.2126, 0.7152, 0.0722)
	rgbCb   = fixed3(-0.2126/1.8556, -0.7152/1.8556, 0.9278/1.8556)
	rgbCr   = fixed3(0.7874/1.5748, -0.7152/1.5748, -0.0722/1.5748)
)

func fixed3(a, b, c float64) [3]int32 { return [3]int32{fixed(a), fixed(b), fixed(c)} }

func fixed(v float64) int32 { return int32(math.Round(v * (1 << bits))) }

// A matrix converts Y'CbCr: luma is [0]·Y + [1]·(Cb-128) + [2]·(Cr-128) + [3], and chroma does not depend on Y.
type matrix struct {
	luma   [4]int32
	cb, cr [2]int32
}

// recolour sets the conversion from colours to those of the output.
func (o *output) recolour(from pipeline.Colorimetry) {
	a, b := coloursOf(from), coloursOf(o.format.Color)
	if o.same = a == b; o.format.Pixel == pipeline.RGB24 { // the rows keep their colours
		o.same, b = true, a
	}
	// R'G'B' from 0 to 1 of a's samples: R = y + 2(1-kr)v, B = y + 2(1-kb)u, with y = (Y-black)/luma, u = (Cb-128)/chroma.
	red, blue := 2*(1-a.kr)/a.chroma, 2*(1-a.kb)/a.chroma
	green := 1 - a.kr - a.kb
	greenU, greenV := -a.kb*blue/green, -a.kr*red/green
	// Y' of b is kr·R + (1-kr-kb)·G + kb·B.
	u := b.kb*blue + (1-b.kr-b.kb)*greenU
	v := b.kr*red + (1-b.kr-b.kb)*greenV
	scale := b.luma / a.luma
	o.matrix.luma = [4]int32{fixed(scale), fixed(u * b.luma), fixed(v * b.luma), fixed(b.black - a.black*scale)}
	// Cb is (B-Y')/(2(1-kb)), Cr is (R-Y')/(2(1-kr)).
	o.matrix.cb = [2]int32{fixed((blue - u) * b.chroma / (2 * (1 - b.kb))), fixed(-v * b.chroma / (2 * (1 - b.kb)))}
	o.matrix.cr = [2]int32{fixed(-u * b.chroma / (2 * (1 - b.kr))), fixed((red - v) * b.chroma / (2 * (1 - b.kr)))}
	y, black := 255/a.luma, -255*a.black/a.luma
	if o.format.Color == pipeline.BT709Limited || o.format.Color == pipeline.BT601Limited { // R'G'B' from 16 to 235
		y, black = 219/a.luma, 16-219*a.black/a.luma
	}
	k := y * a.luma
	o.rgb = [3][4]int32{
		{fixed(y), 0, fixed(k * red), fixed(black)},
		{fixed(y), fixed(k * greenU), fixed(k * greenV), fixed(black)},
		{fixed(y), fixed(k * blue), 0, fixed(black)},
	}
}

// convert writes a row to another one, which may be the same.
func (m *matrix) convert(to, from row) {
	for i := range to.cb {
		u, v := int32(from.cb[i])-128, int32(from.cr[i])-128
		add := m.luma[1]*u + m.luma[2]*v + m.luma[3] + half
		y := (*[2]byte)(from.y[2*i:])
		a, b := clamp((m.luma[0]*int32(y[0])+add)>>bits), clamp((m.luma[0]*int32(y[1])+add)>>bits)
		to.y[2*i], to.y[2*i+1] = a, b
		to.cb[i] = clamp((m.cb[0]*u + m.cb[1]*v + 128<<bits + half) >> bits)
		to.cr[i] = clamp((m.cr[0]*u + m.cr[1]*v + 128<<bits + half) >> bits)
	}
}
