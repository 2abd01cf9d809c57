// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"image"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

func newStage(t testing.TB, memory *cudahost.CUDA, c isp.Config, o Options) *Stage {
	t.Helper()
	s, err := New(memory, c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

const canary = 0xa5

// frame returns a frame in shared memory, filled with canaries.
func frame(t testing.TB, memory *cudahost.CUDA, f pipeline.Format) *pipeline.Frame {
	t.Helper()
	return frameOf(t, memory, f, cudahost.Mapped)
}

// frameOf returns a frame in memory of another kind.
func frameOf(t testing.TB, memory *cudahost.CUDA, f pipeline.Format, flags cudahost.Flags) *pipeline.Frame {
	t.Helper()
	b, err := memory.AllocHost(f.Size(), flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range b.Bytes() {
		b.Bytes()[i] = canary
	}
	return &pipeline.Frame{Format: f, Bytes: b.Bytes(), Device: b.DevicePointer()}
}

func frames(t testing.TB, memory *cudahost.CUDA, formats []pipeline.Format) (list []*pipeline.Frame) {
	for _, f := range formats {
		list = append(list, frame(t, memory, f))
	}
	return list
}

func format(t testing.TB, p pipeline.PixelFormat, width, height int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func outputs() []pipeline.PixelFormat {
	return []pipeline.PixelFormat{pipeline.UYVY, pipeline.UYVP, pipeline.RGB24, pipeline.Grey, pipeline.I420, pipeline.NV12}
}

// fill fills b with noise, black, white, patterns on which filters overshoot, or a dark picture with a few bright
// samples.
func fill(b []byte, kind int, rnd *rand.Rand) {
	for i := range b {
		switch kind % 5 {
		case 0:
			b[i] = byte(rnd.Uint32())
		case 1:
			b[i] = 0
		case 2:
			b[i] = 255
		case 3:
			if b[i] = 0; rnd.IntN(2) > 0 {
				b[i] = 255
			}
			if i%2 == 1 {
				b[i] = b[i-1]
			}
		case 4:
			if b[i] = byte(rnd.IntN(4)); rnd.IntN(40) == 0 {
				b[i] = 255
			}
		}
	}
}

// randomConfig omits every step now and then. Known defects are within 16x16 samples.
func randomConfig(rnd *rand.Rand, bits int) isp.Config {
	maybe := func() bool { return rnd.IntN(3) == 0 }
	c := isp.Config{Demosaic: isp.Demosaic(rnd.IntN(2)), Workers: 1}
	if maybe() {
		c.BlackLevel = rnd.IntN(1 << (bits - 2))
		for i := range c.Black {
			c.Black[i] = rnd.IntN(1 << (bits - 3))
		}
	} else if rnd.IntN(8) == 0 {
		c.BlackLevel = 1<<bits - 2
	}
	if maybe() {
		for range rnd.IntN(10) {
			c.Defects.Pixels = append(c.Defects.Pixels, image.Pt(rnd.IntN(16), rnd.IntN(16)))
		}
	}
	if maybe() {
		c.Defects.Threshold = rnd.IntN(1 << bits)
	}
	if maybe() {
		c.Shading = &isp.Shading{Columns: 2 + rnd.IntN(5), Rows: 2 + rnd.IntN(5)}
		for i := range c.Shading.Gains {
			for range c.Shading.Columns * c.Shading.Rows {
				c.Shading.Gains[i] = append(c.Shading.Gains[i], 1.0/4096+rnd.Float64()*3)
			}
		}
	}
	c.Gains = isp.Gains{R: 1 + rnd.Float64(), B: rnd.Float64()*15.9 + 0.01}
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
	return c
}

// turns returns all orientations.
func turns() (list []isp.Turn) {
	for i := range 8 {
		list = append(list, isp.NewTurn(i >= 4, false, i%4*90))
	}
	return list
}

// randomOutput returns an output of the given size.
func randomOutput(t testing.TB, rnd *rand.Rand, p pipeline.PixelFormat, w, h int) pipeline.Format {
	t.Helper()
	f := format(t, p, w, h)
	f.Color = pipeline.Colorimetry(1 + rnd.IntN(4))
	switch rnd.IntN(3) {
	case 0:
		f.Stride += 2 * rnd.IntN(20)
	case 1:
		g := f
		if g.HeaderGap, g.PacketPitch = 4*rnd.IntN(8), f.Stride/(1+rnd.IntN(4)); true {
			g.PacketPitch += g.HeaderGap
		}
		if g.Validate() == nil {
			f = g
		}
	}
	return f
}

// capture returns a real capture of a test chart, from the project cruxopen/openISP.
func capture(t testing.TB, memory *cudahost.CUDA) *pipeline.Frame {
	t.Helper()
	const file = "fpga/model/testdata/testchart-1920x1080-rggb10le.raw"
	b, err := os.ReadFile("../../../" + file)
	if err != nil {
		b, err = os.ReadFile(file) // the binary of make gpu-test runs in the root of the tree
	}
	if err != nil {
		t.Fatal(err)
	}
	f := frame(t, memory, format(t, pipeline.RGGB10, 1920, 1080))
	if copy(f.Bytes, b) != len(f.Bytes) {
		t.Fatalf("the test chart has %d bytes", len(b))
	}
	return f
}
