// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"context"
	"encoding/binary"
	"image"
	"math"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// TestGreyIsNeutral gives the stage an evenly lit grey wall as seen by a sensor that needs the gains 1.5, 1 and 1.1.
// The remaining tint must be no more than what the sensor's rounding to whole codes causes.
func TestGreyIsNeutral(t *testing.T) {
	s := newStage(t, Config{BlackLevel: 64, Gains: Gains{R: 1.5, G: 1, B: 1.1}})
	for light := 64; light <= 959; light += 5 {
		wall := func(x, y int) uint16 {
			gain := []float64{1.5, 1, 1.1}[x%2+y%2]
			return uint16(64 + math.Round(float64(light)/gain))
		}
		in, outs := planned(t, s, bayer(t, 16, 16, wall), full(pipeline.UYVY), half(pipeline.I420))
		if err := s.Process(context.Background(), in, outs); err != nil {
			t.Fatal(err)
		}
		uyvy, i420 := outs[0].Bytes, outs[1].Bytes[8*8:]
		if tint := max(off(uyvy, 0, 2, len(uyvy)), off(i420, 0, 1, len(i420))); tint > 1 {
			t.Fatalf("light %d: chroma is up to %d codes from neutral", light, tint)
		}
		for i := range uyvy { // an even wall has no texture, not even at the borders
			if uyvy[i] != uyvy[i%4] {
				t.Fatalf("light %d: byte %d is %d, in the corner %d", light, i, uyvy[i], uyvy[i%4])
			}
		}
	}
}

// off returns the largest distance from 128.
func off(b []byte, from, step, to int) int {
	d := 0
	for i := from; i < to; i += step {
		d = max(d, int(b[i])-128, 128-int(b[i]))
	}
	return d
}

// TestGreyOfRealCapture examines the seven grey squares of the chart, which are spread over the picture: with the white
// balance determined by the middle one, the means of red, green and blue of each square differ by at most 3 of 255.
// (The steps of the wedge are tinted on the chart itself, each differently.)
func TestGreyOfRealCapture(t *testing.T) {
	rgb := process(t, Config{Gains: Gains{R: 1.75, B: 1.1}, Demosaic: Malvar}, format(t, pipeline.RGB24, 1920, 1080))[0].Bytes
	for _, at := range [][2]int{{980, 600}, {864, 610}, {1560, 250}, {280, 280}, {1450, 170}, {320, 980}, {1480, 840}} {
		var mean [3]float64
		for y := at[1] - 16; y < at[1]+16; y++ {
			for x := at[0] - 16; x < at[0]+16; x++ {
				for c := range mean {
					mean[c] += float64(rgb[3*(1920*y+x)+c]) / 1024
				}
			}
		}
		tint := max(mean[0], mean[1], mean[2]) - min(mean[0], mean[1], mean[2])
		t.Logf("square at %v: %.1f", at, mean)
		if tint > 3 || mean[1] < 100 || mean[1] > 150 {
			t.Errorf("square at %v: R, G, B %.1f: not a neutral middle grey", at, mean)
		}
	}
}

// TestHotPixelsAreGone adds bright and dead pixels to the real capture. Both ways of repair must leave less than a
// tenth of the damage.
func TestHotPixelsAreGone(t *testing.T) {
	want := format(t, pipeline.RGB24, 1920, 1080)
	clean := process(t, Config{Demosaic: Malvar}, want)[0].Bytes
	damaged := testchart(t)
	var known []image.Point
	for i := range 2000 {
		p := image.Pt(2+(i*1237)%1916, 2+(i*7919)%1076)
		known = append(known, p)
		v := uint16(i % 2 * 1020)
		binary.LittleEndian.PutUint16(damaged.Bytes[p.Y*damaged.Format.Stride+2*p.X:], v)
	}
	damage := func(c Config) float64 {
		c.Demosaic = Malvar
		s := newStage(t, c)
		_, outs := planned(t, s, damaged, full(pipeline.RGB24))
		if err := s.Process(context.Background(), damaged, outs); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i, b := range outs[0].Bytes {
			sum += math.Abs(float64(b) - float64(clean[i]))
		}
		return sum
	}
	before := damage(Config{})
	for name, d := range map[string]Defects{"known": {Pixels: known}, "found": {Threshold: 100}} {
		after := damage(Config{Defects: d})
		t.Logf("%s: %.1f %% of the damage is left", name, 100*after/before)
		if after > before/10 {
			t.Errorf("%s: %.0f of a damage of %.0f is left", name, after, before)
		}
	}
}
