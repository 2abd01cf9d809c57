// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// Test4K compares pixels from all over a 3840x2160 frame, including its corners and the borders of bands, with the
// reference.
func Test4K(t *testing.T) {
	const width, height = 3840, 2160
	chart := testchart(t)
	in := frame(format(t, pipeline.RGGB10, width, height))
	for y := range height {
		line := chart.Bytes[y%1080*3840:][:3840]
		copy(in.Bytes[y*2*width:], line)
		copy(in.Bytes[y*2*width+width:], line)
	}
	c := Config{Gains: Gains{R: 1.5, B: 1.1}, Demosaic: Malvar}
	s := newStage(t, c)
	_, outs := planned(t, s, in, full(pipeline.UYVY), full(pipeline.RGB24), full(pipeline.UYVP))
	if err := s.Process(context.Background(), in, outs); err != nil {
		t.Fatal(err)
	}
	r := newReference(in, c)
	rnd := rand.New(rand.NewPCG(4, 2160))
	for i, out := range outs {
		target := &target{r: r, f: out.Format, bits: []int{8, 8, 10}[i]}
		for n := range 3000 {
			x, y := rnd.IntN(width), rnd.IntN(height)
			switch n % 4 {
			case 1:
				x = []int{0, 1, width - 2, width - 1}[n/4%4]
			case 2:
				y = []int{0, 1, height - 2, height - 1}[n/4%4]
			case 3:
				y = min(y/bandLines*bandLines+n/4%3, height-1)
			}
			target.putPixel(func(at, v int) {
				if out.Bytes[at] != byte(v) {
					t.Fatalf("%s: pixel %d,%d: byte %d is %d, want %d", out.Format.Pixel, x, y, at, out.Bytes[at], v)
				}
			}, x, y)
		}
	}
}
