// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"context"
	"errors"
	"image"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

func TestConfigRefused(t *testing.T) {
	nan := math.NaN()
	grid := func(set func(*Shading)) *Shading {
		s := &Shading{Columns: 2, Rows: 2}
		for i := range s.Gains {
			s.Gains[i] = []float64{1, 1, 1, 1}
		}
		set(s)
		return s
	}
	for want, c := range map[string]Config{
		"black level -1: must be from 0 to 65534":      {BlackLevel: -1},
		"black level 65535: must be from 0 to 65534":   {BlackLevel: 65535},
		"black level of green (blue lines) -1":         {BlackLevel: 1, Black: [4]int{2: -2}},
		"black level of red":                           {Black: [4]int{math.MaxInt}, BlackLevel: 1},
		"red gain 16.1: must be":                       {Gains: Gains{R: 16.1}},
		"green gain -1: must be":                       {Gains: Gains{G: -1}},
		"blue gain NaN: must be":                       {Gains: Gains{B: nan}},
		"gamma 0.5: must be from 1 to 4":               {Gamma: 0.5},
		"gamma NaN":                                    {Gamma: nan},
		"-1 workers":                                   {Workers: -1},
		"257 workers":                                  {Workers: 257},
		"demosaic 2":                                   {Demosaic: 2},
		"sharpen NaN: must be from 0 to 4":             {Sharpen: nan},
		"matrix element 4 is 9: must be from -8 to 8":  {Matrix: [9]float64{4: 9}},
		"curve of 1 knots":                             {Curve: []int{1}},
		"curve of 4097 knots":                          {Curve: make([]int, 4097)},
		"curve knot 1 is 4081: must be from 0 to 4080": {Curve: []int{0, 4081}},
		"defect threshold -1":                          {Defects: Defects{Threshold: -1}},
		"shading grid of 1x2":                          {Shading: grid(func(s *Shading) { s.Columns = 1 })},
		"shading gains of channel 3: 3, must be 4":     {Shading: grid(func(s *Shading) { s.Gains[3] = s.Gains[3][:3] })},
		"shading gain 2 of channel 1 is 8":             {Shading: grid(func(s *Shading) { s.Gains[1][2] = 8 })},
		"shading gain 0 of channel 0 is NaN":           {Shading: grid(func(s *Shading) { s.Gains[0][0] = nan })},
	} {
		if _, err := New(c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestPlanRefused(t *testing.T) {
	in := format(t, pipeline.RGGB10, 16, 16)
	uyvy, i420 := format(t, pipeline.UYVY, 16, 16), format(t, pipeline.I420, 8, 8)
	with := func(f pipeline.Format, set func(*pipeline.Format)) pipeline.Format { set(&f); return f }
	for name, c := range map[string]struct {
		in, want pipeline.Format
		is       error
		text     string
	}{
		"input no Bayer":    {uyvy, uyvy, ErrUnsupported, "input UYVY 16x16"},
		"odd width":         {format(t, pipeline.RGGB10, 15, 16), with(uyvy, func(f *pipeline.Format) { f.Width = 15 }), pipeline.ErrFormat, "even width"},
		"input short":       {with(in, func(f *pipeline.Format) { f.Stride = 30 }), uyvy, pipeline.ErrFormat, "stride 30"},
		"input stride":      {with(in, func(f *pipeline.Format) { f.Stride = 1 << 61 }), uyvy, pipeline.ErrFormat, "stride"},
		"stride":            {in, with(uyvy, func(f *pipeline.Format) { f.Stride = 1 << 61 }), pipeline.ErrFormat, "stride"},
		"input uncached":    {with(in, func(f *pipeline.Format) { f.Memory = pipeline.MemoryWriteCombined }), uyvy, ErrUnsupported, "cannot read"},
		"input in packets":  {with(in, func(f *pipeline.Format) { f.PacketPitch, f.HeaderGap = 20, 4 }), uyvy, ErrUnsupported, "packet-ready"},
		"packets of planes": {in, with(i420, func(f *pipeline.Format) { f.PacketPitch, f.HeaderGap = 20, 4 }), pipeline.ErrFormat, "planes"},
		"packets uneven":    {in, with(uyvy, func(f *pipeline.Format) { f.PacketPitch, f.HeaderGap = 20, 5 }), pipeline.ErrFormat, "whole number"},
		"packet stride":     {in, with(uyvy, func(f *pipeline.Format) { f.PacketPitch, f.HeaderGap, f.Stride = 20, 4, 48 }), pipeline.ErrFormat, "stride 48"},
		"gap without end":   {in, with(uyvy, func(f *pipeline.Format) { f.HeaderGap = 64 }), pipeline.ErrFormat, "0 bytes with 64 of headers"},
		"size":              {in, format(t, pipeline.UYVY, 6, 6), ErrUnsupported, "of 16x16, 8x8 or 4x4"},
		"mixed":             {in, format(t, pipeline.UYVY, 16, 8), ErrUnsupported, "size"},
		"Bayer out":         {in, in, ErrUnsupported, "unknown layout"},
		"grey without one":  {in, format(t, pipeline.Grey, 16, 16), ErrUnsupported, "colorimetry"},
		"unknown colours":   {in, with(i420, func(f *pipeline.Format) { f.Color = 5 }), ErrUnsupported, "colorimetry 5"},
		"device memory":     {in, with(uyvy, func(f *pipeline.Format) { f.Memory = pipeline.MemoryDevice }), ErrUnsupported, "cannot write"},
		"I420 of odd lines": {in, with(i420, func(f *pipeline.Format) { f.Height = 7 }), pipeline.ErrFormat, "even height"},
		"RAW10 of 6":        {pipeline.Format{Pixel: pipeline.RGGB10P, Width: 6, Height: 4, Stride: 10}, uyvy, pipeline.ErrFormat, "multiple of 4"},
	} {
		s := newStage(t, Config{Workers: 1})
		err := s.Plan(c.in, []pipeline.Format{c.want})
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "isp") {
			t.Errorf("%s: error %v, want %q", name, err, c.text)
		}
		if s.Process(context.Background(), frame(in), nil) == nil {
			t.Errorf("%s: Process works after a refused plan", name)
		}
	}
	s := newStage(t, Config{Turn: NewTurn(false, false, 90)})
	if err := s.Plan(format(t, pipeline.RGGB10, 32, 16), []pipeline.Format{format(t, pipeline.UYVY, 32, 16)}); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "of 16x32, 8x16 or 4x8") {
		t.Errorf("the size that is not turned: %v", err)
	}
	s = newStage(t, Config{BlackLevel: 1023})
	if err := s.Plan(in, []pipeline.Format{uyvy}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "from 0 to 1022") {
		t.Errorf("black level 1023 at 10 bits: %v", err)
	}
}

// FuzzStage checks that every accepted configuration and geometry is processed within the bounds of every frame, and
// with the same result as the reference.
func FuzzStage(f *testing.F) {
	f.Add(uint64(1), uint32(pipeline.RGGB10), 8, 6, 16, uint32(pipeline.UYVY), 8, 6, 16, uint8(1), 0, 0, []byte{1, 2, 3})
	f.Add(uint64(2), uint32(pipeline.BGGR12P), 6, 4, 12, uint32(pipeline.RGB24), 3, 2, 10, uint8(3), 0, 0, []byte{255})
	f.Add(uint64(3), uint32(pipeline.Mono16), 64, 130, 129, uint32(pipeline.I420), 32, 64, 70, uint8(2), 0, 0, []byte{0, 4})
	f.Add(uint64(4), uint32(pipeline.Grey), 16, 8, 16, uint32(pipeline.UYVP), 16, 8, 40, uint8(4), 30, 10, []byte{})
	f.Add(uint64(6), uint32(pipeline.GBRG10), 24, 12, 48, uint32(pipeline.NV12), 12, 24, 14, uint8(1), 0, 0, []byte{7, 1})
	f.Fuzz(func(t *testing.T, seed uint64, pixel uint32, w, h, stride int, outPixel uint32, ow, oh, ostride int, color uint8,
		pitch, gap int, noise []byte,
	) {
		if w > 128 || h > 128 || stride > 2048 || ow > 128 || oh > 128 || ostride > 2048 {
			return // larger than a fuzz round should be
		}
		in := pipeline.Format{Pixel: pipeline.PixelFormat(pixel), Width: w, Height: h, Stride: stride}
		out := pipeline.Format{
			Pixel: pipeline.PixelFormat(outPixel), Width: ow, Height: oh, Stride: ostride,
			Color: pipeline.Colorimetry(color), PacketPitch: pitch, HeaderGap: gap,
		}
		c := Config{}
		if s, ok := in.Pixel.Samples(); ok && in.Validate() == nil {
			c = randomConfig(rand.New(rand.NewPCG(seed, 3)), s.Bits, w, h)
		}
		s, err := New(c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		defer s.Close()
		if err := s.Plan(in, []pipeline.Format{out}); err != nil {
			if !errors.Is(err, ErrUnsupported) && !errors.Is(err, pipeline.ErrFormat) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		src := guardedFrame(t, in)
		for i := range src.Bytes {
			if len(noise) > 0 {
				src.Bytes[i] = noise[i%len(noise)] + byte(i/len(noise))
			}
		}
		compare(t, s, newReference(src, c), []pipeline.Format{out})
	})
}

// FuzzConfig checks that no configuration passes Validate and then fails.
func FuzzConfig(f *testing.F) {
	f.Add(0, 1.0, 1.0, 0.0, 0.0, 0.0, uint8(0), uint8(0), 0, 0, 0, 0)
	f.Add(1022, 16.0, 1.0/4096, 4.0, 8.0, 4.0, uint8(1), uint8(5), 65535, 4080, -5, 100)
	f.Fuzz(func(t *testing.T, black int, red, blue, gamma, m, sharpen float64, demosaic, turn uint8, threshold, knot, x, y int) {
		c := Config{
			BlackLevel: black, Black: [4]int{knot}, Gains: Gains{R: red, B: blue}, Gamma: gamma, Matrix: [9]float64{m, 1, -m}, Sharpen: sharpen,
			Demosaic: Demosaic(demosaic), Defects: Defects{Threshold: threshold, Pixels: []image.Point{{x, y}}}, Workers: 1,
			Turn:    turns()[turn%8],
			Shading: &Shading{Columns: 2, Rows: 2, Gains: [4][]float64{{red, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, blue}}},
		}
		if knot != 0 {
			c.Curve = []int{0, knot, white}
		}
		s, err := New(c)
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		defer s.Close()
		in := guardedFrame(t, pipeline.Format{Pixel: pipeline.GRBG16, Width: 10, Height: 6, Stride: 20})
		if err := s.Plan(in.Format, nil); err != nil {
			t.Fatalf("accepted by New, refused by Plan: %v", err)
		}
		w, h := c.Turn.Size(10, 6)
		compare(t, s, newReference(in, c), []pipeline.Format{format(t, pipeline.RGB24, w, h), format(t, pipeline.NV12, w, h)})
	})
}
