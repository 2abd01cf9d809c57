// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"bytes"
	"image"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// TestTwins compares this machine's kernels with those in Go, bit by bit, with inaccessible memory behind frame and tensor.
func TestTwins(t *testing.T) {
	for i := range 400 {
		t.Run("", func(t *testing.T) { twins(t, uint64(i)) })
	}
}

func twins(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	c := randomConfig(rnd, 100)
	p := preprocessor(t, c)
	pixels, got, want := guarded(t, c.Format.Size()), guarded(t, p.bytes), make([]byte, p.bytes)
	noise(rnd, pixels)
	p.Process(pixels, got)
	q := preprocessor(t, c)
	q.kernels = plain()
	q.Process(pixels, want)
	if i := slices.IndexFunc(got, func(byte) bool { return !bytes.Equal(got, want) }); i >= 0 {
		for i = range got {
			if got[i] != want[i] {
				break
			}
		}
		t.Fatalf("%+v: byte %d of %d is %d, in plain Go %d", c, i, len(got), got[i], want[i])
	}
}

// TestNothingRemains checks that a tensor depends neither on what its memory was, nor on an earlier frame.
func TestNothingRemains(t *testing.T) {
	for i := range 100 {
		rnd := rand.New(rand.NewPCG(uint64(i), 3))
		c := randomConfig(rnd, 60)
		p := preprocessor(t, c)
		earlier, pixels := make([]byte, c.Format.Size()), make([]byte, c.Format.Size())
		noise(rnd, earlier)
		noise(rnd, pixels)
		got, want := bytes.Repeat([]byte{canary}, p.bytes), make([]byte, p.bytes)
		p.Process(earlier, got)
		p.Process(pixels, got)
		preprocessor(t, c).Process(pixels, want)
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v: the tensor depends on what was before", c)
		}
		got = bytes.Repeat([]byte{canary}, p.bytes)
		if p.Process(pixels, got); !bytes.Equal(got, want) {
			t.Fatalf("%+v: not every byte was written", c)
		}
	}
}

func format(t testing.TB, p pipeline.PixelFormat, width, height int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ordinary returns a configuration that New accepts.
func ordinary(t testing.TB) Config {
	return Config{
		Format: format(t, pipeline.RGB24, 64, 48), Width: 20, Height: 20, Channels: 3, Type: tensor.Float32, Scale: [3]float64{1, 1, 1},
	}
}

// TestCopies checks that a crop of the tensor's size is copied exactly.
func TestCopies(t *testing.T) {
	c := ordinary(t)
	c.Crop = image.Rect(13, 7, 33, 27)
	pixels := make([]byte, c.Format.Size())
	noise(rand.New(rand.NewPCG(1, 4)), pixels)
	for _, c.Type = range []tensor.Type{tensor.Float32, tensor.Float16, tensor.Uint8} {
		p := preprocessor(t, c)
		got := make([]byte, p.bytes)
		p.Process(pixels, got)
		for n := range 3 * 20 * 20 {
			x, y, channel := n%20, n/20%20, n/400
			if v, want := value(p, got, x, y, channel), float64(pixels[(7+y)*c.Format.Stride+3*(13+x)+channel]); v != want {
				t.Fatalf("%s: channel %d at (%d, %d) is %v, want %v", c.Type, channel, x, y, v, want)
			}
		}
	}
}

// TestPlacement finds a frame's points where the tensor has their pixels.
func TestPlacement(t *testing.T) {
	c := ordinary(t)
	c.Crop, c.Letterbox, c.Width, c.Height = image.Rect(8, 4, 40, 20), true, 64, 64
	p := preprocessor(t, c) // 32x16 becomes 64x32, 16 below the tensor's upper edge
	at := p.Placement()
	if x, y := at.Frame(0, 16); x != 8 || y != 4 || at.Width != 64 || at.Height != 64 {
		t.Errorf("%+v: the picture's corner is at %v, %v", at, x, y)
	}
	if x, y := at.Frame(64, 48); x != 40 || y != 20 {
		t.Errorf("%+v: the picture's other corner is at %v, %v", at, x, y)
	}
	for _, q := range []struct {
		crop, size image.Point
		want       image.Rectangle
	}{
		{image.Pt(1920, 1080), image.Pt(640, 640), image.Rect(0, 140, 640, 500)},
		{image.Pt(1080, 1920), image.Pt(640, 640), image.Rect(140, 0, 500, 640)},
		{image.Pt(100, 99), image.Pt(10, 11), image.Rect(0, 0, 10, 10)}, // half of 1, rounded down
		{image.Pt(3000, 1), image.Pt(10, 10), image.Rect(0, 4, 10, 5)},
		{image.Pt(4, 3), image.Pt(2, 9), image.Rect(0, 3, 2, 5)}, // 1.5 rounded up
	} {
		if got := picture(q.crop, q.size, true); got != q.want {
			t.Errorf("%v in %v is at %v, want %v", q.crop, q.size, got, q.want)
		}
	}
}

func TestInfo(t *testing.T) {
	c := ordinary(t)
	c.Width, c.Height = 30, 20
	if got := preprocessor(t, c).Info().String(); got != `"input" float32 [1 3 20 30]` {
		t.Error(got)
	}
	c.NHWC = true
	if got := preprocessor(t, c).Info().String(); got != `"input" float32 [1 20 30 3]` {
		t.Error(got)
	}
}

func TestRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"make GREY, RGB3":                     func(c *Config) { c.Format.Pixel = pipeline.UYVP },
		"stride 2 is less than":               func(c *Config) { c.Format.Stride = 2 },
		"packet-ready":                        func(c *Config) { c.Format.PacketPitch, c.Format.HeaderGap = 64*3+8, 8 },
		"no colorimetry":                      func(c *Config) { c.Format, c.Format.Color = format(t, pipeline.NV12, 64, 48), pipeline.ColorNone },
		"is not inside the frame (0,0)-(64,":  func(c *Config) { c.Crop = image.Rect(1, 1, 65, 3) },
		"tensor of 0x20 pixels":               func(c *Config) { c.Width = 0 },
		"must be from 1 to 16384":             func(c *Config) { c.Height = maxSide + 1 },
		"more than 1073741824 bytes":          func(c *Config) { c.Width, c.Height = maxSide, maxSide },
		"tensor of 2 channels":                func(c *Config) { c.Channels = 2 },
		"tensor of int64: float32, float16":   func(c *Config) { c.Type = tensor.Int64 },
		"fill 256: it must be from 0 to 255":  func(c *Config) { c.Fill = 256 },
		"fill NaN":                            func(c *Config) { c.Fill = math.NaN() },
		"the scale of channel 1 is 0":         func(c *Config) { c.Scale[1] = 0 },
		"which float16 does not have":         func(c *Config) { c.Type, c.Scale[2] = tensor.Float16, 300 },
		"mean NaN and scale 1":                func(c *Config) { c.Mean[0] = math.NaN() },
		"to +Inf, which float32 does not hav": func(c *Config) { c.Scale[0] = math.Inf(1) },
	} {
		c := ordinary(t)
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "preprocess: ") {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
}

func TestProcessAllocatesNothing(t *testing.T) {
	for _, c := range []Config{{Type: tensor.Float32}, {Type: tensor.Uint8, NHWC: true}, {Type: tensor.Float16}} {
		c.Format, c.Width, c.Height, c.Channels, c.Scale, c.Letterbox = format(t, pipeline.I420, 64, 48), 30, 30, 3, [3]float64{1, 1, 1}, true
		p := preprocessor(t, c)
		pixels, into := make([]byte, c.Format.Size()), make([]byte, p.bytes)
		if n := testing.AllocsPerRun(10, func() { p.Process(pixels, into) }); n != 0 {
			t.Errorf("%v allocations for %s", n, c.Type)
		}
	}
}

// FuzzProcess makes tensors of random configurations. Whatever New accepts is processed without reading or writing outside.
func FuzzProcess(f *testing.F) {
	f.Add(uint64(1), 64, 48, 0, 0, 0, 0, 20, 20, 255.0)
	f.Add(uint64(2), 2, 2, 1, 1, 2, 2, 1, 1, 1e9)
	f.Fuzz(func(t *testing.T, seed uint64, width, height, x0, y0, x1, y1, w, h int, scale float64) {
		c := randomConfig(rand.New(rand.NewPCG(seed, 5)), 40)
		c.Format.Width, c.Format.Height, c.Width, c.Height, c.Scale[0] = width, height, w, h, scale
		c.Format.Stride = c.Format.Pixel.LineBytes(min(max(width, 0), 1<<16)) + int(seed%9)
		c.Crop = image.Rectangle{image.Pt(x0, y0), image.Pt(x1, y1)}
		p, err := New(c)
		if long := width > 512 || height > 512 || w > 256 || h > 256; err != nil || long {
			return
		}
		p.Process(guarded(t, c.Format.Size()), guarded(t, p.bytes))
	})
}
