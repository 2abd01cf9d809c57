// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"image"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/isp"
)

func preprocessor(t testing.TB, c Config) *Preprocessor {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// picture1080 returns the test chart of pipeline/isp, a real capture of 1920x1080 pixels, in a format.
func picture1080(t testing.TB, f pipeline.Format) []byte {
	t.Helper()
	s, err := isp.New(isp.Config{Gains: isp.Gains{R: 1.5, B: 1.1}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := os.ReadFile("../../../fpga/model/testdata/testchart-1920x1080-rggb10le.raw")
	if err != nil {
		t.Fatal(err)
	}
	in, err := pipeline.NewFormat(pipeline.RGGB10, 1920, 1080, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Color == pipeline.ColorNone {
		f.Color = pipeline.BT709Full
	}
	out := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size())}
	if err := s.Plan(in, []pipeline.Format{f}); err != nil {
		t.Fatal(err)
	}
	if err := s.Process(t.Context(), &pipeline.Frame{Format: in, Bytes: raw}, []*pipeline.Frame{out}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes
}

// randomConfig returns a possible configuration of at most side pixels.
func randomConfig(rnd *rand.Rand, side int) Config {
	number := func(below int) int { return rnd.IntN(1 + rnd.IntN(below)) }
	maybe := func() bool { return rnd.IntN(2) == 0 }
	f, _ := pipeline.NewFormat(formats[rnd.IntN(len(formats))], 2+2*number(side/2), 2+2*number(side/2), pipeline.Rate{})
	if odd := f.Pixel == pipeline.Grey || f.Pixel == pipeline.RGB24; odd {
		f, _ = pipeline.NewFormat(f.Pixel, f.Width+rnd.IntN(2), f.Height+rnd.IntN(2), pipeline.Rate{})
	}
	f.Stride += 2 * number(20)
	f.Color = pipeline.Colorimetry(1 + rnd.IntN(4))
	c := Config{
		Format: f, Width: 1 + number(side), Height: 1 + number(side), Channels: 1 + 2*rnd.IntN(2),
		Type: []tensor.Type{tensor.Float32, tensor.Float16, tensor.Uint8}[rnd.IntN(3)],
		NHWC: maybe(), BGR: maybe(), Letterbox: maybe(), Fill: float64(rnd.IntN(256)),
	}
	if maybe() {
		x, y := rnd.IntN(f.Width), rnd.IntN(f.Height)
		c.Crop = image.Rect(x, y, x+1+rnd.IntN(f.Width-x), y+1+rnd.IntN(f.Height-y))
	}
	for i := range c.Scale {
		if c.Scale[i] = 1; maybe() {
			c.Mean[i], c.Scale[i] = 255*rnd.Float64(), (rnd.Float64()-0.5)/10
		}
	}
	return c
}

// noise fills b with random bytes, many of which are extreme.
func noise(rnd *rand.Rand, b []byte) {
	for i := range b {
		switch b[i] = byte(rnd.Uint32()); rnd.IntN(6) {
		case 0:
			b[i] = 0
		case 1:
			b[i] = 255
		}
	}
}

const canary = 0xa5

// guarded returns n bytes that end where inaccessible memory begins: reading or writing beyond them ends the process. A
// canary is before them and in them.
func guarded(t testing.TB, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1 + 64) / page * page
	m, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i, b := range m[:size-n] {
			if b != canary {
				t.Errorf("byte %d in front of the memory was written", i-(size-n))
				break
			}
		}
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(m[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for i := range m[:size] {
		m[i] = canary
	}
	return m[size-n : size : size]
}
