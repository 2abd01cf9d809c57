package isp

import (
	"context"
	"math"
	"testing"

	"tegracast/pipeline"
)

// TestGreyIsNeutral gives the stage an evenly lit grey wall as a sensor sees it that needs the gains 1.5, 1 and 1.1:
// what is left of the tint is what the sensor's rounding to whole codes makes of it.
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
		for i := range uyvy { // an even wall has no texture, at the borders least of all
			if uyvy[i] != uyvy[i%4] {
				t.Fatalf("light %d: byte %d is %d, in the corner %d", light, i, uyvy[i], uyvy[i%4])
			}
		}
	}
}

// off is the largest distance from 128.
func off(b []byte, from, step, to int) int {
	d := 0
	for i := from; i < to; i += step {
		d = max(d, int(b[i])-128, 128-int(b[i]))
	}
	return d
}

// TestGreyOfRealCapture looks at the grey square in the middle of the chart.
func TestGreyOfRealCapture(t *testing.T) {
	s := newStage(t, Config{Gains: Gains{R: 1.5, G: 1, B: 1.1}})
	in, outs := planned(t, s, testchart(t), full(pipeline.UYVY))
	if err := s.Process(context.Background(), in, outs); err != nil {
		t.Fatal(err)
	}
	var sum [4]float64
	for y := 594; y < 632; y++ {
		for x := 2 * 950; x < 2*1000; x++ {
			sum[x%4] += float64(outs[0].Bytes[y*3840+x]) / (38 * 25)
		}
	}
	t.Logf("Cb %.1f Y %.1f Cr %.1f Y %.1f", sum[0], sum[1], sum[2], sum[3])
	if math.Abs(sum[0]-128) > 5 || math.Abs(sum[2]-128) > 5 || sum[1] < 90 || sum[1] > 140 {
		t.Errorf("Cb %.1f Y %.1f Cr %.1f: not a neutral middle grey", sum[0], sum[1], sum[2])
	}
}
