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
			if kinds == 2 {
				src[x] = byte(255 * rnd.IntN(2))
			}
		}
		bits := 8 + 2*rnd.IntN(5)
		black := blackArgs{mask: uint16(1<<bits - 1), shift: uint16(16 - bits), black: [2]uint16{uint16(rnd.IntN(2) * rnd.IntN(1<<bits)), uint16(rnd.IntN(1 << bits))}}
		blackRow(a, src, &black)
		blackGo(b, src, &black)
		same("black", a, b)

		var gains gainArgs
		for j := range 2 {
			gains.m[j], gains.n[j] = uint16([]int{rnd.IntN(1 << 15), 1 << 14}[rnd.IntN(2)]), uint32([]int{1 + rnd.IntN(29), 15}[rnd.IntN(2)])
			if light := int(black.mask-black.black[j]) << black.shift; i%2 == 0 && light > 0 { // those of a sensor
				m, n := factor(1+rnd.IntN(maxGain*gainOne), light)
				gains.m[j], gains.n[j] = m, uint32(n)
			}
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
			if bits == 8 {
				twinPlanes(t, n, &p, &q, &c)
			}
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
}

// twinPlanes compares the kernels that write luma, and chroma in two planes and in one.
func twinPlanes(t *testing.T, n int, p, q *rgb, c *conversion) {
	d, e := guarded(t, n), guarded(t, n)
	same := func(name string) {
		t.Helper()
		if !slices.Equal(d, e) {
			t.Fatalf("%s of %d pixels: %v, in plain Go %v", name, n, d, e)
		}
	}
	lumaBytesRow(d, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &c.luma)
	lumaBytesGo(e, p.r.at(0, n), p.g.at(0, n), p.b.at(0, n), &c.luma)
	same("luma")
	n &^= 1
	d, e = guarded(t, n), guarded(t, n)
	chroma420Row(d, d[1:], 2, p, q, n, &c.chroma)
	chroma420Go(e, e[1:], 2, p, q, 0, n, &c.chroma)
	same("pairs of chroma")
	d2, e2 := guarded(t, n/2), guarded(t, n/2)
	d, e = guarded(t, n/2), guarded(t, n/2)
	chroma420Row(d, d2, 1, p, q, n, &c.chroma)
	chroma420Go(e, e2, 1, p, q, 0, n, &c.chroma)
	same("Cb")
	d, e = d2, e2
	same("Cr")
}

// TestUYVYTwins compares lines of UYVY, in packets too, with those of the kernels in plain Go.
func TestUYVYTwins(t *testing.T) {
	for i := range 400 {
		rnd := rand.New(rand.NewPCG(uint64(i), 11))
		n, packets := 2*(1+rnd.IntN(70)), 1+rnd.IntN(4)
		width := n * packets
		p := rgb{newLine(width), newLine(width), newLine(width)}
		for _, l := range []line{p.r, p.g, p.b} {
			for x := range l {
				l[x] = uint16([]int{rnd.IntN(white + 1), white * rnd.IntN(2)}[i%2])
			}
		}
		f := format(t, pipeline.UYVY, width, 2)
		f.HeaderGap = 4 * rnd.IntN(3)
		f.PacketPitch = 2*n + f.HeaderGap
		f.Color = 1 + pipeline.Colorimetry(i/2%4)
		o := output{format: f, convert: newConversion(f.Color, 8), payload: 2 * n, count: packets}
		dst := guarded(t, 2*packets*f.PacketPitch)
		new(worker).writePacked(&o, dst, &p, part{y: 1, n: width})
		dst = dst[len(dst)/2:]
		want := make([]byte, 2*width)
		uyvyGo(want, &p, 0, width, &o.convert)
		for k := range packets {
			packet := dst[k*f.PacketPitch:][:f.PacketPitch]
			if got, want := packet[f.HeaderGap:], want[k*2*n:][:2*n]; !slices.Equal(got, want) {
				t.Fatalf("%d pixels in packet %d of %d, %s: %v, in plain Go %v", n, k, packets, f.Color, got, want)
			}
			for _, b := range packet[:f.HeaderGap] {
				if b != canary {
					t.Fatalf("the gap of packet %d was written: %v", k, packet[:f.HeaderGap])
				}
			}
		}
	}
}
