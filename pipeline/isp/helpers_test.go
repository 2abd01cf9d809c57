// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

func newStage(t testing.TB, c Config) *Stage {
	t.Helper()
	s, err := New(c)
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

func format(t testing.TB, p pipeline.PixelFormat, width, height int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func frame(f pipeline.Format) *pipeline.Frame {
	return &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size())}
}

// A wish is an output of a given input.
type wish func(t testing.TB, in pipeline.Format) pipeline.Format

func full(p pipeline.PixelFormat) wish {
	return func(t testing.TB, in pipeline.Format) pipeline.Format { return format(t, p, in.Width, in.Height) }
}

func half(p pipeline.PixelFormat) wish {
	return func(t testing.TB, in pipeline.Format) pipeline.Format { return format(t, p, in.Width/2, in.Height/2) }
}

// planned plans the wishes for in and returns frames for them.
func planned(t testing.TB, s *Stage, in *pipeline.Frame, wishes ...wish) (*pipeline.Frame, []*pipeline.Frame) {
	t.Helper()
	var want []pipeline.Format
	var outs []*pipeline.Frame
	for _, w := range wishes {
		f := w(t, in.Format)
		want, outs = append(want, f), append(outs, frame(f))
	}
	if err := s.Plan(in.Format, want); err != nil {
		t.Fatal(err)
	}
	return in, outs
}

// testchart returns a real capture of a test chart, from the project cruxopen/openISP.
func testchart(t testing.TB) *pipeline.Frame {
	t.Helper()
	b, err := os.ReadFile("../../fpga/model/testdata/testchart-1920x1080-rggb10le.raw")
	if err != nil {
		t.Fatal(err)
	}
	f := frame(format(t, pipeline.RGGB10, 1920, 1080))
	if copy(f.Bytes, b) != len(b) || len(b) != len(f.Bytes) {
		t.Fatalf("the test chart has %d bytes", len(b))
	}
	return f
}

// bayer returns an input of 10 bits.
func bayer(t testing.TB, width, height int, sample func(x, y int) uint16) *pipeline.Frame {
	t.Helper()
	in := frame(format(t, pipeline.RGGB10, width, height))
	for i := range width * height {
		binary.LittleEndian.PutUint16(in.Bytes[2*i:], sample(i%width, i/width))
	}
	return in
}
