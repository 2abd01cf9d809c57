// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// frameOf returns a frame whose pixels have red on the left half and grey on the right one.
func frameOf(t testing.TB, p pipeline.PixelFormat, width, height int) *pipeline.Frame {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	frame := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size())}
	red, grey := []byte{63, 102, 240}, []byte{126, 128, 128} // BT.709, limited
	switch {
	case p == pipeline.RGB24:
		red, grey = []byte{255, 0, 0}, []byte{128, 128, 128}
	case p == pipeline.I420: // BT.601, full
		red, grey = []byte{76, 85, 255}, []byte{128, 128, 128}
	case p == pipeline.Grey:
		red, grey = []byte{76, 128, 128}, []byte{128, 128, 128}
	}
	luma := f.Stride * height
	for y := range height {
		for x := range width {
			c, line := grey, frame.Bytes[y*f.Stride:]
			if x < width/2 {
				c = red
			}
			switch p {
			case pipeline.RGB24:
				copy(line[3*x:], c)
			case pipeline.Grey:
				line[x] = c[0]
			case pipeline.UYVY:
				line[2*x], line[2*x+1] = c[1+x%2], c[0]
			case pipeline.UYVP:
				group := uint64(c[1])<<32 | uint64(c[0])<<22 | uint64(c[2])<<12 | uint64(c[0])<<2
				for i := range 5 {
					line[x/2*5+i] = byte(group >> (32 - 8*i))
				}
			case pipeline.I420:
				line[x] = c[0]
				at := luma + y/2*(f.Stride/2) + x/2
				frame.Bytes[at], frame.Bytes[at+luma/4] = c[1], c[2]
			case pipeline.NV12:
				line[x] = c[0]
				frame.Bytes[luma+y/2*f.Stride+x/2*2], frame.Bytes[luma+y/2*f.Stride+x/2*2+1] = c[1], c[2]
			}
		}
	}
	return frame
}

// TestPicturesOfAnyPixels checks that frames of each pixel format become pictures with the colours of JPEG, also smaller ones.
func TestPicturesOfAnyPixels(t *testing.T) {
	for _, p := range []pipeline.PixelFormat{pipeline.RGB24, pipeline.UYVY, pipeline.UYVP, pipeline.I420, pipeline.NV12, pipeline.Grey} {
		if !Shows(p) {
			t.Errorf("%s is not shown", p)
		}
		for _, size := range [][2]int{{64, 48}, {32, 24}, {20, 16}} {
			to := frameOf(t, pipeline.I420, size[0], size[1])
			clear(to.Bytes)
			convert(to, frameOf(t, p, 64, 48))
			want := frameOf(t, pipeline.I420, size[0], size[1])
			if p == pipeline.Grey {
				for i := range want.Bytes[size[0]*size[1]:] {
					want.Bytes[size[0]*size[1]+i] = 128
				}
			}
			for i, b := range to.Bytes {
				if d := int(b) - int(want.Bytes[i]); d < -2 || d > 2 {
					t.Fatalf("%s to %v: byte %d is %d, must be %d", p, size, i, b, want.Bytes[i])
				}
			}
		}
	}
	if Shows(pipeline.RGGB10) || Shows(0) {
		t.Error("samples of a sensor are shown")
	}
}

// TestPicturesHaveTheRegions checks that a picture has the regions of its frame, and the size that they refer to.
func TestPicturesHaveTheRegions(t *testing.T) {
	small, err := pipeline.NewFormat(pipeline.I420, 32, 24, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler)})
	c, s := &camera{format: frameOf(t, pipeline.UYVY, 64, 48).Format, numbers: make(chan uint64)}, New(small, stamp{})
	c.results = []pipeline.Result{
		{Stage: "model", Regions: []pipeline.Region{{X: 1, Y: 2, Width: 3, Height: 4, Label: "cat", Score: 0.5}}, Tags: map[string]string{"a": "b"}},
		{Stage: "isp", Numbers: map[string]float64{"focus": 1}},
	}
	if err := g.AddSource("camera", c); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Attach(pipeline.OutputConfig{Name: "view", Sink: s}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	c.numbers <- 7
	p, err := s.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Found{{"model", []pipeline.Region{{X: 1, Y: 2, Width: 3, Height: 4, Label: "cat", Score: 0.5}}}}
	if p.Sequence != 7 || p.JPEG[0] != 7 || p.Width != 64 || p.Height != 48 || !reflect.DeepEqual(p.Found, want) {
		t.Errorf("%+v", p)
	}
	close(c.numbers)
	if err := errors.Join(<-ended, g.Close()); err != nil {
		t.Error(err)
	}
}
