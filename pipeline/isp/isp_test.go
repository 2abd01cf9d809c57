// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// A content fills the bytes of an input.
type content func(b []byte, rnd *rand.Rand)

var contents = []content{
	func(b []byte, rnd *rand.Rand) { // any byte, and so any bits above those of the samples
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
	},
	func(b []byte, _ *rand.Rand) { clear(b) },
	func(b []byte, _ *rand.Rand) {
		for i := range b {
			b[i] = 255
		}
	},
	func(b []byte, rnd *rand.Rand) { // words of black and white, on which filters overshoot
		for i := range b {
			if b[i] = 0; rnd.IntN(2) > 0 {
				b[i] = 255
			}
			if i%2 == 1 {
				b[i] = b[i-1]
			}
		}
	},
	func(b []byte, rnd *rand.Rand) { // dark, with noise and a few bright samples, in which defects are found
		for i := range b {
			if b[i] = byte(rnd.IntN(4)); rnd.IntN(40) == 0 {
				b[i] = 0xff
			}
		}
	},
}

// inputs returns all formats of sensors.
func inputs() []pipeline.PixelFormat {
	return []pipeline.PixelFormat{
		pipeline.RGGB8, pipeline.GRBG8, pipeline.GBRG8, pipeline.BGGR8, pipeline.Grey,
		pipeline.RGGB10, pipeline.GRBG10, pipeline.GBRG10, pipeline.BGGR10, pipeline.Mono10,
		pipeline.RGGB12, pipeline.GRBG12, pipeline.GBRG12, pipeline.BGGR12, pipeline.Mono12,
		pipeline.RGGB14, pipeline.GRBG14, pipeline.GBRG14, pipeline.BGGR14, pipeline.Mono14,
		pipeline.RGGB16, pipeline.GRBG16, pipeline.GBRG16, pipeline.BGGR16, pipeline.Mono16,
		pipeline.RGGB10P, pipeline.GRBG10P, pipeline.GBRG10P, pipeline.BGGR10P, pipeline.Mono10P,
		pipeline.RGGB12P, pipeline.GRBG12P, pipeline.GBRG12P, pipeline.BGGR12P, pipeline.Mono12P,
	}
}

func outputs() []pipeline.PixelFormat {
	return []pipeline.PixelFormat{pipeline.UYVY, pipeline.UYVP, pipeline.RGB24, pipeline.Grey, pipeline.I420, pipeline.NV12}
}

// randomConfig omits every step now and then.
func randomConfig(rnd *rand.Rand, bits, w, h int) Config {
	maybe := func() bool { return rnd.IntN(3) == 0 }
	c := Config{Demosaic: Demosaic(rnd.IntN(2)), Workers: 1 + rnd.IntN(3)}
	if maybe() {
		c.BlackLevel = rnd.IntN(1 << (bits - 2))
		for i := range c.Black {
			c.Black[i] = rnd.IntN(1 << (bits - 3))
		}
	} else if maybe() {
		c.BlackLevel = 1<<bits - 2
	}
	if maybe() {
		for range rnd.IntN(10) {
			c.Defects.Pixels = append(c.Defects.Pixels, image.Pt(rnd.IntN(w+2)-1, rnd.IntN(h+2)-1))
		}
		c.Defects.Threshold = rnd.IntN(2) * rnd.IntN(1<<bits)
	}
	if maybe() {
		c.Shading = &Shading{Columns: 2 + rnd.IntN(5), Rows: 2 + rnd.IntN(5)}
		for i := range c.Shading.Gains {
			for range c.Shading.Columns * c.Shading.Rows {
				c.Shading.Gains[i] = append(c.Shading.Gains[i], 1.0/4096+rnd.Float64()*3)
			}
		}
	}
	c.Gains = Gains{R: 1 + rnd.Float64(), B: rnd.Float64()*15.9 + 0.01}
	if maybe() {
		for i := range c.Matrix {
			c.Matrix[i] = rnd.Float64()*16 - 8
		}
	}
	switch rnd.IntN(3) {
	case 0:
		c.Gamma = 1 + 3*rnd.Float64()
	case 1:
		for range 2 + rnd.IntN(20) {
			c.Curve = append(c.Curve, rnd.IntN(4081))
		}
	}
	if maybe() {
		c.Sharpen = 4 * rnd.Float64()
	}
	if rnd.IntN(2) == 0 {
		c.Turn = turns()[rnd.IntN(8)]
	}
	return c
}

// turns returns all Turns.
func turns() (list []Turn) {
	for i := range 8 {
		list = append(list, Turn{Transpose: i&4 > 0, ReverseY: i&2 > 0, ReverseX: i&1 > 0})
	}
	return list
}

// randomOutput returns a possible output of the given size, or false.
func randomOutput(rnd *rand.Rand, p pipeline.PixelFormat, w, h int) (pipeline.Format, bool) {
	f, err := pipeline.NewFormat(p, w, h, pipeline.Rate{})
	if err != nil {
		return f, false
	}
	f.Color = pipeline.Colorimetry(1 + rnd.IntN(4))
	switch rnd.IntN(3) {
	case 0:
		f.Stride += 2 * rnd.IntN(20)
	case 1:
		g := f
		if g.HeaderGap, g.PacketPitch = 20, 20+f.Stride/(1+rnd.IntN(4)); g.Validate() == nil {
			f = g
		}
	}
	return f, true
}

// compare processes in and compares every output with the reference, including padding and gaps.
func compare(t testing.TB, s *Stage, r *reference, want []pipeline.Format) {
	t.Helper()
	var outs []*pipeline.Frame
	for _, f := range want {
		outs = append(outs, guardedFrame(t, f))
	}
	if err := s.Plan(r.in.Format, want); err != nil {
		t.Fatal(err)
	}
	if err := s.Process(context.Background(), r.in, outs); err != nil {
		t.Fatal(err)
	}
	for _, out := range outs {
		ref := bytes.Repeat([]byte{canary}, len(out.Bytes))
		r.picture(out.Format, ref)
		if i := firstDifference(out.Bytes, ref); i >= 0 {
			t.Fatalf("%s from %s: byte %d is %d, want %d", out.Format, r.in.Format, i, out.Bytes[i], ref[i])
		}
	}
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// trials returns how many of all cases a test tries: few with -short, and under the race detector, which looks for races
// between workers.
func trials(all, few int) int {
	if raced || testing.Short() {
		return few
	}
	return all
}

// TestAgainstReference tests 1,000 random geometries and configurations with every input, output and size.
func TestAgainstReference(t *testing.T) {
	seen := map[string]bool{}
	n := trials(1000, 140)
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(i), 6))
			pixel := inputs()[i%35]
			samples, _ := pixel.Samples()
			w, h := 2+rnd.IntN(40), 2+rnd.IntN(20)
			if i%2 == 0 {
				w, h = 8+8*rnd.IntN(6), 8+8*rnd.IntN(3) // a size for which everything is possible
			}
			if i%23 == 0 {
				w, h = 2+rnd.IntN(300), 2+rnd.IntN(3)
			}
			in, err := pipeline.NewFormat(pixel, w, h, pipeline.Rate{})
			if err != nil {
				w = max(4, w&^3)
				in, _ = pipeline.NewFormat(pixel, w, h, pipeline.Rate{})
			}
			in.Stride += rnd.IntN(2) * rnd.IntN(9)
			src := guardedFrame(t, in)
			contents[rnd.IntN(len(contents))](src.Bytes, rnd)
			c := randomConfig(rnd, samples.Bits, w, h)
			var want []pipeline.Format
			w, h = c.Turn.Size(w, h)
			for size := range sizes {
				for j := range 2 {
					p := outputs()[(i/35+2*size+j)%6]
					if f, ok := randomOutput(rnd, p, w>>size, h>>size); ok && len(want) < 6 {
						want = append(want, f)
						seen[fmt.Sprint(pixel, p, size)] = true
					}
				}
			}
			s := newStage(t, c)
			s.pass.bandLines = 4 << rnd.IntN(5)
			compare(t, s, newReference(src, c), want)
		})
	}
	if all := 35 * 6 * sizes; n == 1000 && len(seen) != all {
		t.Errorf("%d of %d combinations of input, output and size were tried", len(seen), all)
	}
}

// TestRealCapture processes a part of the real capture with all steps at once.
func TestRealCapture(t *testing.T) {
	whole := testchart(t)
	f := format(t, pipeline.RGGB10, 160, 96)
	in := frame(f)
	for y := range f.Height {
		copy(in.Bytes[y*f.Stride:][:f.Stride], whole.Bytes[(500+y)*whole.Format.Stride+2*900:])
	}
	shading := &Shading{Columns: 2, Rows: 2}
	for i := range shading.Gains {
		shading.Gains[i] = []float64{1, 1.1, 1.2, 1.3}
	}
	for _, c := range []Config{
		{Gains: Gains{R: 1.5, B: 1.1}},
		{
			BlackLevel: 8, Gains: Gains{R: 1.5, B: 1.1}, Demosaic: Malvar, Defects: Defects{Threshold: 60}, Shading: shading,
			Matrix: [9]float64{1.5, -0.3, -0.2, -0.2, 1.5, -0.3, 0, -0.5, 1.5}, Gamma: 2.2, Sharpen: 1,
		},
	} {
		var want []pipeline.Format
		for i, p := range outputs() {
			g, err := pipeline.NewFormat(p, f.Width>>(i%3), f.Height>>(i%3), pipeline.Rate{})
			if err != nil {
				t.Fatal(err)
			}
			if p == pipeline.Grey {
				g.Color = pipeline.BT601Limited
			}
			want = append(want, g)
		}
		compare(t, newStage(t, c), newReference(in, c), want)
	}
}

// TestBands splits the same frame in all ways that keep four lines together.
func TestBands(t *testing.T) {
	const width, height = 40, 52
	in := frame(format(t, pipeline.GBRG12, width, height))
	contents[0](in.Bytes, rand.New(rand.NewPCG(1, 1)))
	c := Config{Demosaic: Malvar, Sharpen: 1, Defects: Defects{Threshold: 100, Pixels: []image.Point{{3, 4}, {5, 4}}}}
	r := newReference(in, c)
	want := []pipeline.Format{
		format(t, pipeline.UYVY, width, height), format(t, pipeline.I420, width/2, height/2), format(t, pipeline.RGB24, width/4, height/4),
	}
	for c.Workers = 1; c.Workers <= 4; c.Workers++ {
		for lines := 4; lines <= height+4; lines += 4 {
			s := newStage(t, c)
			s.pass.bandLines = lines
			compare(t, s, r, want)
		}
	}
}

func TestFrameFields(t *testing.T) {
	s := newStage(t, Config{})
	in := frame(format(t, pipeline.RGGB10, 8, 8))
	contents[0](in.Bytes, rand.New(rand.NewPCG(1, 1)))
	_, outs := planned(t, s, in, full(pipeline.UYVY), half(pipeline.I420))
	captured := time.Now()
	in.Sequence, in.Times.Captured, in.Flags = 1<<40, captured, pipeline.FlagPadded
	outs[0] = nil
	outs[1].Inherit(in) // as the graph does
	if err := s.Process(context.Background(), in, outs); err != nil {
		t.Fatal(err)
	}
	out := outs[1]
	if out.Sequence != 1<<40 || out.Flags != pipeline.FlagPadded || !out.Times.Captured.Equal(captured) {
		t.Errorf("fields not copied: %d %v %v", out.Sequence, out.Flags, out.Times)
	}
	if out.Times.Processed.Before(captured) || !in.Times.Processed.IsZero() {
		t.Errorf("processed: out %v, in %v", out.Times.Processed, in.Times.Processed)
	}
	want := make([]byte, len(out.Bytes))
	newReference(in, Config{}).picture(out.Format, want)
	if i := firstDifference(out.Bytes, want); i >= 0 {
		t.Errorf("with another output left out byte %d is wrong", i)
	}
}

func TestSetGains(t *testing.T) {
	s := newStage(t, Config{Workers: 2})
	if err := s.SetGains(Gains{R: 17}); !errors.Is(err, ErrConfig) {
		t.Errorf("gain 17: %v", err)
	}
	in := frame(format(t, pipeline.RGGB10, 16, 16))
	contents[0](in.Bytes, rand.New(rand.NewPCG(2, 1)))
	_, outs := planned(t, s, in, full(pipeline.RGB24))
	for _, g := range []Gains{{}, {R: 2, B: 1.5}, {G: 0.5}} {
		if err := s.SetGains(g); err != nil {
			t.Fatal(err)
		}
		if err := s.Process(context.Background(), in, outs); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, len(outs[0].Bytes))
		newReference(in, Config{Gains: g}).picture(outs[0].Format, want)
		if i := firstDifference(outs[0].Bytes, want); i >= 0 {
			t.Errorf("gains %v: byte %d is wrong", g, i)
		}
	}
}

func TestProcessRefused(t *testing.T) {
	s := newStage(t, Config{Workers: 2})
	in, outs := planned(t, s, frame(format(t, pipeline.RGGB10, 8, 8)), full(pipeline.UYVY))
	short := &pipeline.Frame{Format: in.Format, Bytes: in.Bytes[1:]}
	other := frame(half(pipeline.UYVY)(t, in.Format))
	for name, c := range map[string]struct {
		in   *pipeline.Frame
		outs []*pipeline.Frame
		text string
	}{
		"short input":  {short, outs, "has 127 bytes, needs 128"},
		"other format": {in, []*pipeline.Frame{other}, "output 0 is UYVY 4x4"},
		"number":       {in, nil, "0 outputs, planned 1"},
		"no bytes":     {in, []*pipeline.Frame{{Format: outs[0].Format}}, "has 0 bytes"},
	} {
		if err := s.Process(context.Background(), c.in, c.outs); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: error %v, want %q", name, err, c.text)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Process(ctx, in, outs); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Process(context.Background(), in, outs); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.Plan(in.Format, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestProcessAllocatesNothing(t *testing.T) {
	for _, turn := range turns() {
		c := Config{
			Workers: 2, Demosaic: Malvar, Sharpen: 1, Observe: func(*Statistics) {}, Matrix: [9]float64{2, -1, 0, 0, 1, 0, 0, 0, 1},
			Defects: Defects{Threshold: 10, Pixels: []image.Point{{3, 4}}}, Turn: turn,
		}
		s := newStage(t, c)
		in := frame(format(t, pipeline.RGGB10, 128, 128))
		contents[0](in.Bytes, rand.New(rand.NewPCG(2, 1)))
		_, outs := planned(t, s, in, full(pipeline.UYVY), half(pipeline.I420), full(pipeline.RGB24))
		if n := testing.AllocsPerRun(100, func() {
			if err := s.Process(context.Background(), in, outs); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%+v: %v allocations a frame", turn, n)
		}
	}
}
