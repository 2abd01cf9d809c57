// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// TestKernelTwins compares the kernels of this machine with those in plain Go, on lines of all lengths and with the
// extreme values that the previous steps can produce.
func TestKernelTwins(t *testing.T) {
	curve := newTone(Config{})
	for i := range 600 {
		rnd := rand.New(rand.NewPCG(uint64(i), 9))
		n, kinds := 2+i%250, 6
		if i%3 == 0 {
			kinds = 2 // nothing but extremes
		}
		sample := func(limit int) line {
			l := newLine(n)
			for x := range l {
				switch l[x] = uint16(rnd.IntN(limit + 1)); rnd.IntN(kinds) {
				case 0:
					l[x] = 0
				case 1:
					l[x] = uint16(limit)
				}
			}
			return l
		}
		same := func(name string, a, b []uint16) {
			t.Helper()
			if !slices.Equal(a[:n], b[:n]) {
				t.Fatalf("%s of %d pixels: %v, in plain Go %v", name, n, a[:n], b[:n])
			}
		}
		full, linear, toned := sample(65535), sample(linearMax), sample(white)
		a, b := newLine(n).at(0, n), newLine(n).at(0, n)

		src := guarded(t, 2*n)
		for x := range src {
			src[x] = byte(rnd.Uint32())
		}
		bits := 8 + 2*rnd.IntN(5)
		black := blackArgs{mask: uint16(1<<bits - 1), shift: uint16(16 - bits), black: [2]uint16{uint16(rnd.IntN(1 << bits)), uint16(rnd.IntN(1 << bits))}}
		blackRow(a, src, &black)
		blackGo(b, src, &black)
		same("black", a, b)

		var gains gainArgs
		for j := range 2 {
			gains.m[j], gains.n[j] = uint16(rnd.IntN(1<<15)), uint32(1+rnd.IntN(29))
			gains.half[j] = 1 << (gains.n[j] - 1)
		}
		gainRow(a, full.at(0, n), &gains)
		gainGo(b, full.at(0, n), &gains)
		same("gain", a, b)

		linearRow(a, src, &black, &gains)
		linearGo(b, src, &black, &gains)
		same("linear", a, b)

		weight := int16(rnd.IntN(257))
		upper, lower := sample(32767), sample(32767)
		shadeRow(a, full.at(0, n), upper.at(0, n), lower.at(0, n), &[2]int16{256 - weight, weight})
		shadeGo(b, full.at(0, n), upper.at(0, n), lower.at(0, n), &[2]int16{256 - weight, weight})
		same("shade", a, b)

		up, down, step, threshold := sample(65535), sample(65535), 1+rnd.IntN(2), uint16(rnd.IntN(2)*rnd.IntN(65536))
		la, lb := newLine(n), newLine(n)
		anyA := suspectsRow(la, up, full, down, n, step, threshold) != 0
		if anyB := suspectsGo(lb, up, full, down, n, step, threshold) != 0; anyA != anyB {
			t.Fatalf("suspects of %d pixels: any %v, in plain Go %v", n, anyA, anyB)
		}
		same("suspects", la[margin:], lb[margin:])

		rows := [5]line{sample(linearMax), sample(linearMax), linear, sample(linearMax), sample(linearMax)}
		x := mosaicLine{newLine(n), newLine(n), newLine(n), rnd.IntN(2)}
		y := mosaicLine{newLine(n), newLine(n), newLine(n), x.odd}
		bilinearRow(&x, rows[1], rows[2], rows[3], n)
		bilinearGo(&y, rows[1], rows[2], rows[3], n)
		same("bilinear own", x.own[margin:], y.own[margin:])
		same("bilinear green", x.green[margin:], y.green[margin:])
		same("bilinear third", x.other[margin:], y.other[margin:])
		malvarRow(&x, &rows, n)
		malvarGo(&y, &rows, n)
		same("malvar own", x.own[margin:], y.own[margin:])
		same("malvar green", x.green[margin:], y.green[margin:])
		same("malvar third", x.other[margin:], y.other[margin:])

		var m [9]int16
		for j := range m {
			m[j] = int16(rnd.IntN(1<<16) - 1<<15)
		}
		matrixRow(x.own.at(0, n), x.green.at(0, n), x.other.at(0, n), &m)
		matrixGo(y.own.at(0, n), y.green.at(0, n), y.other.at(0, n), &m)
		same("matrix red", x.own[margin:], y.own[margin:])
		same("matrix green", x.green[margin:], y.green[margin:])
		same("matrix blue", x.other[margin:], y.other[margin:])

		copy(a, linear.at(0, n))
		copy(b, linear.at(0, n))
		toneRow(a, curve)
		toneGo(b, &curve.table)
		same("tone", a, b)

		twinOutputs(t, rnd, n, sample, toned, same)
	}
}

// TestToneOfEverySample compares the kernel of this machine with the table.
func TestToneOfEverySample(t *testing.T) {
	curve := newTone(Config{})
	row := newLine(linearMax+1).at(0, linearMax+1)
	for v := range row {
		row[v] = uint16(v)
	}
	toneRow(row, curve)
	for v, got := range row {
		if got != curve.table[v] {
			t.Fatalf("sample %d: %d, want %d", v, got, curve.table[v])
		}
	}
}

func twinOutputs(t *testing.T, rnd *rand.Rand, n int, sample func(int) line, toned line, same func(string, []uint16, []uint16)) {
	p, q := rgb{toned, sample(white), sample(white)}, rgb{sample(white), sample(white), sample(white)}
	a, b := newLine(n).at(0, n), newLine(n).at(0, n)
	for color := range 4 {
		for bits := 8; bits <= 10; bits += 2 {
			c := newConversion(1+pipeline.Colorimetry(color), bits)
			lumaRow(a, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &c.luma)
			lumaGo(b, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &c.luma)
			same("luma", a, b)
			even := n &^ 1
			chroma422Row(a, &p, even, &c.chroma)
			chroma422Go(b, &p, even, &c.chroma)
			same("chroma 4:2:2", append(a[:even:even], 0), append(b[:even:even], 0))
			chroma420Row(a, &p, &q, even, &c.chroma)
			chroma420Go(b, &p, &q, even, &c.chroma)
			same("chroma 4:2:0", append(a[:even:even], 0), append(b[:even:even], 0))
		}
	}
	detailRow(a, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n))
	detailGo(b, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n))
	same("detail", a, b)
	u, v := rgb{newLine(n), newLine(n), newLine(n)}, rgb{newLine(n), newLine(n), newLine(n)}
	lumas, strength := [3]line{q.r, q.g, q.b}, int32(1+rnd.IntN(256))
	sharpenRow(&u, &p, &lumas, n, strength)
	sharpenGo(&v, &p, &lumas, n, strength)
	same("sharpen red", u.r[margin:], v.r[margin:])
	same("sharpen green", u.g[margin:], v.g[margin:])
	same("sharpen blue", u.b[margin:], v.b[margin:])
	even := n &^ 1
	y10, c10 := sample(1023).at(0, even), sample(1023).at(0, even)
	d, e := guarded(t, even/2*5), guarded(t, even/2*5)
	uyvpRow(d, y10, c10)
	uyvpGo(e, y10, c10)
	if !slices.Equal(d, e) {
		t.Fatalf("uyvp of %d pixels: %v, in plain Go %v", even, d, e)
	}
	l, c := sample(255).at(0, n), sample(255).at(0, n)
	d, e = guarded(t, 2*n), guarded(t, 2*n)
	uyvyRow(d, l, c)
	uyvyGo(e, l, c)
	if !slices.Equal(d, e) {
		t.Fatalf("uyvy of %d pixels: %v, in plain Go %v", n, d, e)
	}
	d, e = guarded(t, 3*n), guarded(t, 3*n)
	rgb24Row(d, l, c, l, 0)
	rgb24Go(e, l, c, l, 0)
	if !slices.Equal(d, e) {
		t.Fatalf("rgb24 of %d pixels: %v, in plain Go %v", n, d, e)
	}
	rgb24Row(d, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), 4)
	rgb24Go(e, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), 4)
	if !slices.Equal(d, e) {
		t.Fatalf("rgb24 of %d pixels, divided by 16: %v, in plain Go %v", n, d, e)
	}
	d, e = guarded(t, n), guarded(t, n)
	narrowRow(d, l)
	narrowGo(e, l)
	if !slices.Equal(d, e) {
		t.Fatalf("narrow of %d pixels: %v, in plain Go %v", n, d, e)
	}
}
