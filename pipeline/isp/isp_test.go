package isp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tegracast/pipeline"
)

// A pattern is the sensor word at x, y.
type pattern func(x, y int) uint16

func patterns(seed uint64) map[string]pattern {
	rnd := rand.New(rand.NewPCG(seed, 1))
	check := func(n int) pattern {
		return func(x, y int) uint16 { return uint16((x/n + y/n) % 2 * 1023) }
	}
	return map[string]pattern{
		"dark":     func(int, int) uint16 { return 0 },
		"white":    func(int, int) uint16 { return 1023 },
		"overfull": func(int, int) uint16 { return 65535 },
		"random":   func(int, int) uint16 { return uint16(rnd.UintN(1024)) },
		"any word": func(int, int) uint16 { return uint16(rnd.UintN(65536)) },
		"pixels":   check(1),
		"quads":    check(2),
		"columns":  func(x, _ int) uint16 { return uint16(x % 2 * 1023) },
		"red":      func(x, y int) uint16 { return uint16((1 - x%2) * (1 - y%2) * 1023) },
		"blue":     func(x, y int) uint16 { return uint16(x % 2 * (y % 2) * 1023) },
	}
}

// bayer makes an input whose lines are padded by pad bytes of noise.
func bayer(t testing.TB, width, height, pad int, p pattern) *pipeline.Frame {
	t.Helper()
	f := format(t, pipeline.RGGB10, width, height)
	f.Stride += pad
	in := frame(f)
	for i := range in.Bytes {
		in.Bytes[i] = 0xa5
	}
	for y := range height {
		for x := range width {
			binary.LittleEndian.PutUint16(in.Bytes[y*f.Stride+2*x:], p(x, y))
		}
	}
	return in
}

// possible are all outputs that Plan must accept for the geometry.
func possible(width, height, pad int) []pipeline.Format {
	var fs []pipeline.Format
	for _, p := range []pipeline.PixelFormat{pipeline.UYVY, pipeline.I420} {
		for _, by := range []int{1, 2} {
			f, err := pipeline.NewFormat(p, width/by, height/by, pipeline.Rate{})
			if f.Stride += 2 * pad; err == nil && (by == 1 || height%2 == 0) {
				fs = append(fs, f)
			}
		}
	}
	return fs
}

// compare processes in and compares every output with the reference, padding included.
func compare(t testing.TB, s *Stage, r *reference, want []pipeline.Format) {
	t.Helper()
	in := r.in
	var outs []*pipeline.Frame
	for _, f := range want {
		outs = append(outs, frame(f))
	}
	if err := s.Plan(in.Format, want); err != nil {
		t.Fatal(err)
	}
	if err := s.Process(context.Background(), in, outs); err != nil {
		t.Fatal(err)
	}
	for _, out := range outs {
		ref := r.picture(out.Format)
		if i := firstDifference(out.Bytes, ref); i >= 0 {
			t.Fatalf("%s from %s: byte %d is %d, want %d", out.Format, in.Format, i, out.Bytes[i], ref[i])
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

func TestAgainstReference(t *testing.T) {
	geometries := []struct{ width, height, pad int }{
		{2, 2, 0},
		{4, 2, 1},
		{2, 4, 3},
		{4, 4, 0},
		{6, 4, 2},
		{8, 8, 7},
		{10, 3, 0},
		{12, 5, 5},
		{14, 18, 0},
		{16, 65, 1},
		{34, 130, 64},
		{130, 34, 1},
	}
	configs := []Config{
		{Gains: Gains{R: 1.5, G: 1, B: 1.1}},
		{BlackLevel: 64, Gains: Gains{R: 2.03, B: 0.7}, Gamma: 2.2, Workers: 3},
		{BlackLevel: 1022, Gains: Gains{R: 16, G: 1.0 / 4096}, Gamma: 1, Workers: 1},
	}
	for i, c := range configs {
		s := newStage(t, c)
		for _, g := range geometries {
			for name, p := range patterns(uint64(i)) {
				t.Run(fmt.Sprintf("%d/%dx%d+%d/%s", i, g.width, g.height, g.pad, name), func(t *testing.T) {
					r := newReference(bayer(t, g.width, g.height, g.pad, p), c)
					compare(t, s, r, possible(g.width, g.height, g.pad))
				})
			}
		}
	}
}

func TestRealCapture(t *testing.T) {
	c := Config{Gains: Gains{R: 1.5, G: 1, B: 1.1}}
	in := testchart(t)
	compare(t, newStage(t, c), newReference(in, c), []pipeline.Format{
		full(pipeline.UYVY)(t, in.Format), half(pipeline.I420)(t, in.Format),
	})
}

// TestBands cuts the same frame in all ways that keep four lines together.
func TestBands(t *testing.T) {
	const width, height = 36, 52
	r := newReference(bayer(t, width, height, 0, patterns(7)["random"]), Config{})
	for workers := 1; workers <= 4; workers++ {
		for lines := 4; lines <= height+4; lines += 4 {
			s := newStage(t, Config{Workers: workers})
			s.pass.bandLines = lines
			compare(t, s, r, possible(width, height, 0))
		}
	}
}

func TestFrameFields(t *testing.T) {
	s := newStage(t, Config{})
	in, outs := planned(t, s, bayer(t, 8, 8, 0, patterns(1)["random"]), full(pipeline.UYVY), half(pipeline.I420))
	captured := time.Now()
	in.Sequence, in.Times.Captured, in.Flags = 1<<40, captured, pipeline.FlagPadded
	outs[0] = nil
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
	if i := firstDifference(out.Bytes, newReference(in, Config{}).picture(out.Format)); i >= 0 {
		t.Errorf("with another output left out byte %d is wrong", i)
	}
}

func TestConfigRefused(t *testing.T) {
	for want, c := range map[string]Config{
		"black level -1: must be from 0 to 1022":   {BlackLevel: -1},
		"black level 1023: must be from 0 to 1022": {BlackLevel: 1023},
		"red gain 16.1: must be":                   {Gains: Gains{R: 16.1}},
		"green gain -1: must be":                   {Gains: Gains{G: -1}},
		"blue gain NaN: must be":                   {Gains: Gains{B: nan()}},
		"gamma 0.5: must be from 1 to 4":           {Gamma: 0.5},
		"gamma NaN":                                {Gamma: nan()},
		"-1 workers":                               {Workers: -1},
		"257 workers":                              {Workers: 257},
	} {
		if _, err := New(c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", c, err, want)
		}
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

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
		"input odd width":   {with(in, func(f *pipeline.Format) { f.Width = 15 }), uyvy, ErrUnsupported, "odd width"},
		"input short":       {with(in, func(f *pipeline.Format) { f.Stride = 30 }), uyvy, pipeline.ErrFormat, "stride 30"},
		"input stride":      {with(in, func(f *pipeline.Format) { f.Stride = 1 << 61 }), uyvy, pipeline.ErrFormat, "stride"},
		"stride":            {in, with(uyvy, func(f *pipeline.Format) { f.Stride = 1 << 61 }), pipeline.ErrFormat, "stride"},
		"input uncached":    {with(in, func(f *pipeline.Format) { f.Memory = pipeline.MemoryWriteCombined }), uyvy, ErrUnsupported, "cannot read"},
		"input in packets":  {with(in, func(f *pipeline.Format) { f.PacketPitch = 1500 }), uyvy, ErrUnsupported, "packet-ready"},
		"size":              {in, format(t, pipeline.UYVY, 4, 4), ErrUnsupported, "of 16x16 or 8x8"},
		"half of odd":       {format(t, pipeline.RGGB10, 16, 17), format(t, pipeline.UYVY, 8, 8), ErrUnsupported, "size"},
		"mixed":             {in, format(t, pipeline.UYVY, 16, 8), ErrUnsupported, "size"},
		"Bayer out":         {in, in, ErrUnsupported, "unknown layout"},
		"range":             {in, with(uyvy, func(f *pipeline.Format) { f.Color = pipeline.BT601Full }), ErrUnsupported, "colorimetry"},
		"other range":       {in, with(i420, func(f *pipeline.Format) { f.Color = pipeline.BT709Limited }), ErrUnsupported, "colorimetry"},
		"device memory":     {in, with(uyvy, func(f *pipeline.Format) { f.Memory = pipeline.MemoryDevice }), ErrUnsupported, "cannot write"},
		"packets":           {in, with(uyvy, func(f *pipeline.Format) { f.HeaderGap = 64 }), ErrUnsupported, "packet-ready"},
		"I420 of odd lines": {in, with(i420, func(f *pipeline.Format) { f.Height = 7 }), pipeline.ErrFormat, "even height"},
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
}

func TestProcessRefused(t *testing.T) {
	s := newStage(t, Config{Workers: 2})
	in, outs := planned(t, s, bayer(t, 8, 8, 0, patterns(1)["random"]), full(pipeline.UYVY))
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
	s := newStage(t, Config{Workers: 2})
	in, outs := planned(t, s, bayer(t, 64, 256, 0, patterns(1)["random"]), full(pipeline.UYVY), half(pipeline.I420))
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Process(context.Background(), in, outs); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

// FuzzStage: whatever configuration and geometry is accepted is processed, within the bounds of every frame.
func FuzzStage(f *testing.F) {
	f.Add(0, 1.5, 1.1, 0.0, 2, 8, 6, 16, 8, 6, 16, true, []byte{1, 2, 3})
	f.Add(64, 1.0, 1.0, 2.2, 1, 2, 2, 5, 2, 2, 4, true, []byte{255})
	f.Add(1022, 16.0, 0.1, 4.0, 3, 64, 130, 129, 32, 65, 70, false, []byte{0, 4})
	f.Add(5, 0.0, 0.0, 1.0, 1, 6, 4, 12, 3, 2, 4, false, []byte{})
	f.Fuzz(func(t *testing.T, black int, red, blue, gamma float64, workers, w, h, stride, ow, oh, ostride int,
		uyvy bool, noise []byte,
	) {
		if w > 256 || h > 256 || stride > 2048 || ow > 256 || oh > 256 || ostride > 2048 || workers > 8 {
			return // larger than a fuzz round should be
		}
		c := Config{BlackLevel: black, Gains: Gains{R: red, B: blue}, Gamma: gamma, Workers: workers}
		s, err := New(c)
		if err != nil {
			return
		}
		defer s.Close()
		in := pipeline.Format{Pixel: pipeline.RGGB10, Width: w, Height: h, Stride: stride}
		out := pipeline.Format{Pixel: pipeline.I420, Width: ow, Height: oh, Stride: ostride, Color: pipeline.BT601Full}
		if uyvy {
			out.Pixel, out.Color = pipeline.UYVY, pipeline.BT709Limited
		}
		if err := s.Plan(in, []pipeline.Format{out}); err != nil {
			if !errors.Is(err, ErrUnsupported) && !errors.Is(err, pipeline.ErrFormat) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		src, dst := frame(in), frame(out)
		for i := range src.Bytes {
			if len(noise) > 0 {
				src.Bytes[i] = noise[i%len(noise)] + byte(i/len(noise))
			}
		}
		if err := s.Process(context.Background(), src, []*pipeline.Frame{dst}); err != nil {
			t.Fatal(err)
		}
		if i := firstDifference(dst.Bytes, newReference(src, c).picture(out)); i >= 0 {
			t.Fatalf("byte %d differs from the reference", i)
		}
	})
}
