// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// TestShortWayAgainstReference tests random geometries, mosaics, black levels and gains on the short way.
func TestShortWayAgainstReference(t *testing.T) {
	for i := range 200 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(i), 12))
			pixel := inputs()[i%35]
			samples, _ := pixel.Samples()
			w, h := 2+rnd.IntN(150), 2+rnd.IntN(12)
			if samples.Packed {
				w = max(4, w&^3)
			}
			src := guardedFrame(t, format(t, pixel, w, h))
			contents[rnd.IntN(len(contents))](src.Bytes, rnd)
			c := Config{BlackLevel: rnd.IntN(2) * rnd.IntN(1<<samples.Bits-1), Workers: 1 + rnd.IntN(3)}
			c.Gains = Gains{R: rnd.Float64()*15.9 + 0.01, B: 1 + rnd.Float64()}
			f, _ := randomOutput(rnd, pipeline.RGB24, w, h)
			f.Color = []pipeline.Colorimetry{pipeline.BT709Full, pipeline.BT601Full}[rnd.IntN(2)]
			s := newStage(t, c)
			s.pass.bandLines = 4 * rnd.IntN(3)
			compare(t, s, newReference(src, c), []pipeline.Format{f})
			if short := hasColors() && samples.Mosaic != pipeline.Mono && samples.Bits < 16; s.plan.colors != short {
				t.Fatalf("short way: %v, want %v", s.plan.colors, short)
			}
		})
	}
}

// TestColumnsTwins compares the kernels of the short way with those in plain Go, on lines of all lengths, and those
// with the long way.
func TestColumnsTwins(t *testing.T) {
	curve := newTone(Config{})
	for i := range 600 {
		rnd := rand.New(rand.NewPCG(uint64(i), 10))
		n := 2 + i%250
		src := guarded(t, 2*n)
		for x := range src {
			src[x] = byte(rnd.Uint32())
		}
		l := levels{mask: uint16(1<<(8+2*rnd.IntN(4)) - 1), red: [2]int{rnd.IntN(2), rnd.IntN(2)}}
		for l.shift = 16; l.mask>>(16-l.shift) > 0; l.shift-- {
		}
		for c := range l.black {
			l.black[c] = uint16(rnd.IntN(int(l.mask)))
			l.m[c], l.n[c] = factor(1+rnd.IntN(16*gainOne), int(l.mask-l.black[c])<<l.shift)
		}
		y := rnd.IntN(2)
		a, blacks, gains := l.columns(y), l.blacks(y), l.gains(y)
		vector, plain, long := newColumns(n), newColumns(n), newLine(n)
		columnsRow(&vector, src, n, &a)
		columnsGo(&plain, src, n, &a)
		linearGo(long.at(0, n), src, &blacks, &gains)
		for x := range n {
			if v, p, w := *vector.at(x), *plain.at(x), long[margin+x]; v != p || p != w {
				t.Fatalf("sample %d of %d: %d, in plain Go %d, the long way %d", x, n, v, p, w)
			}
		}
		twinColors(t, rnd, n, l.phase(y), curve)
	}
}

func twinColors(t *testing.T, rnd *rand.Rand, n int, p phase, curve *tone) {
	var lines [3]line
	var split [3]columns
	for i := range lines {
		lines[i], split[i] = newLine(n), newColumns(n)
		for x := range n {
			v := uint16(rnd.IntN(linearMax + 1))
			switch rnd.IntN(6) {
			case 0:
				v = 0
			case 1:
				v = linearMax
			}
			lines[i][margin+x], *split[i].at(x) = v, v
		}
		lines[i].mirror(n)
		split[i].mirror(n)
	}
	vector, plain, long := guarded(t, 3*n), guarded(t, 3*n), guarded(t, 3*n)
	colorsRow(vector, &split[0], &split[1], &split[2], n, newWeave(p), curve)
	colorsGo(plain, &split[0], &split[1], &split[2], n, p, curve)
	c := rgb{newLine(n), newLine(n), newLine(n)}
	d := mosaicLine{own: c.r, green: c.g, other: c.b, odd: p.odd}
	if p.blue == 1 {
		d.own, d.other = c.b, c.r
	}
	bilinearGo(&d, lines[0], lines[1], lines[2], n)
	for _, l := range []line{c.r, c.g, c.b} {
		toneGo(l.at(0, n), &curve.table)
	}
	rgb24Go(long, c.r.at(0, n), c.g.at(0, n), c.b.at(0, n), 4)
	if !slices.Equal(plain, long) {
		t.Fatalf("colours of %d pixels, %+v, in plain Go: %v, the long way %v", n, p, plain, long)
	}
	if !slices.Equal(vector, plain) {
		t.Fatalf("colours of %d pixels, %+v: %v, in plain Go %v", n, p, vector, plain)
	}
}

// TestByteCurve compares the byte for every sample with the table, for the tables of bytes, of words and of signed words.
func TestByteCurve(t *testing.T) {
	curve := newTone(Config{})
	c, s := curve.bytes, curve.signed
	for v := range linearMax + 1 {
		j, _, log := segmentOf(v)
		part := (int(int16(uint16(v)<<(15-log)))*int(c.rise[j]) + 1<<14) >> 15
		got := c.high[j] + (c.low[j]+byte(part))>>4
		if want := byte((curve.table[v] + 8) >> 4); got != want {
			t.Fatalf("sample %d: %d, want %d", v, got, want)
		}
		got = byte((curve.words.base[j] + uint16(uint32(4*v)*uint32(curve.words.rise[j])>>16)) >> 5)
		if want := byte((curve.table[v] + 8) >> 4); got != want {
			t.Fatalf("sample %d in words: %d, want %d", v, got, want)
		}
		base, rise := int(s[0][j])|int(s[1][j])<<8, int(s[2][j])|int(s[3][j])<<8
		if got, want := uint16(base+(int(int16(4*v))*rise+1<<14)>>15), curve.table[v]; got != want {
			t.Fatalf("sample %d in signed words: %d, want %d", v, got, want)
		}
	}
}
