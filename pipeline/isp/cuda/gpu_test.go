// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// onCPU reports whether the stand-in runs the kernels (cpu_test.go). A plan then takes a second to compile.
func onCPU() bool { return os.Getenv("STANDIN_FOLDER") != "" }

// counts returns how many plans to make, and how many frame sizes to test with each.
func counts() (plans, geometries int) {
	if onCPU() {
		return 14, 5
	}
	return 250, 4
}

// await waits for all outputs.
func await(t testing.TB, outs []*pipeline.Frame) {
	t.Helper()
	for _, out := range outs {
		if out != nil {
			if err := out.Ready.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// reference returns the Go isp's pictures of in, and its statistics.
func reference(t testing.TB, c isp.Config, in *pipeline.Frame, want []pipeline.Format) (outs []*pipeline.Frame, stats isp.Statistics) {
	t.Helper()
	c.Observe = func(s *isp.Statistics) { stats = *s }
	s, err := isp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, f := range want {
		outs = append(outs, &pipeline.Frame{Format: f, Bytes: bytes.Repeat([]byte{canary}, f.Size())})
	}
	if err := errors.Join(s.Plan(in.Format, want), s.Process(t.Context(), in, outs)); err != nil {
		t.Fatal(err)
	}
	return outs, stats
}

// compare compares whole frames, including padding and gaps.
func compare(t testing.TB, what string, got, want []*pipeline.Frame) {
	t.Helper()
	for i, out := range got {
		if bytes.Equal(out.Bytes, want[i].Bytes) {
			continue
		}
		for at, b := range out.Bytes {
			if b != want[i].Bytes[at] {
				t.Fatalf("%s: output %d, %s, packets of %d with %d: byte %d (line %d) is %d, want %d", what, i, out.Format,
					out.Format.PacketPitch, out.Format.HeaderGap, at, at/out.Format.Stride, b, want[i].Bytes[at])
			}
		}
	}
}

// TestGPUAgainstGo tests random configurations and geometries with every input and output, in place and staged.
func TestGPUAgainstGo(t *testing.T) {
	memory := cudatest.GPU(t)
	cache := t.TempDir()
	plans, geometries := counts()
	t.Logf("%s: %d plans of %d geometries", memory.Device, plans, geometries)
	t.Run("plans", func(t *testing.T) {
		for i := range plans {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				randomPlan(t, memory, i, geometries, cache)
			})
		}
	})
}

// randomPlan compares frames of several geometries that share kernels.
func randomPlan(t *testing.T, memory *cudahost.CUDA, number, geometries int, cache string) {
	rnd := rand.New(rand.NewPCG(uint64(number), 36)) // the first values of this seed include every feature
	sensors := sensorFormats()
	pixel := sensors[(number*13)%len(sensors)]
	samples, _ := pixel.Samples()
	c := randomConfig(rnd, samples.Bits)
	if number%2 == 1 {
		c.Turn = turns()[number/2%8]
	}
	var stats isp.Statistics
	observe := c
	observe.Results = "isp"
	observe.Observe = func(s *isp.Statistics) { stats = *s }
	s := newStage(t, memory, observe, Options{Transfer: InPlace + Transfer(number%2), Cache: cache})
	odd := number%3 == 0 && !samples.Packed
	var pixels []pipeline.PixelFormat
	for i := range 4 {
		p := outputs()[(number+i*5)%6]
		if odd {
			p = outputs()[2+(number+i)%2]
		}
		pixels = append(pixels, p)
	}
	for g := range geometries {
		w, h := 16+8*rnd.IntN(40), 16+8*rnd.IntN(8)
		if odd {
			w, h = 16+rnd.IntN(300), 16+rnd.IntN(60)
		}
		f := format(t, pixel, w, h)
		f.Stride += rnd.IntN(3) * rnd.IntN(9)
		in := frame(t, memory, f)
		fill(in.Bytes, number+g, rnd)
		in.Sequence = uint64(g)
		in.Times.Captured = time.Unix(int64(g), 0)
		var want []pipeline.Format
		for i, p := range pixels {
			size := (i + number) % 3
			across, down := c.Turn.Size(w>>size, h>>size)
			want = append(want, randomOutput(t, rnd, p, across, down))
		}
		if err := s.Plan(f, want); err != nil {
			t.Fatal(err)
		}
		outs := frames(t, memory, want)
		if err := s.Process(t.Context(), in, outs); err != nil {
			t.Fatal(err)
		}
		await(t, outs)
		ref, refStats := reference(t, c, in, want)
		compare(t, fmt.Sprintf("geometry %d, %s, %+v", g, f, c), outs, ref)
		if r := outs[0].Results; len(r) != 1 || !reflect.DeepEqual(r[0], refStats.Result("isp", s.plan.recipe.White)) {
			t.Fatalf("geometry %d, %s: results %+v", g, f, r)
		}
		if stats != refStats {
			t.Fatalf("geometry %d, %s: statistics: focus %d and %d, samples %v and %v, clipped %v and %v", g, f,
				stats.Focus, refStats.Focus, stats.Samples, refStats.Samples, stats.Clipped, refStats.Clipped)
		}
		inSlices(t, s, memory, in, ref, rnd)
	}
}

func sensorFormats() (list []pipeline.PixelFormat) {
	for m := pipeline.RGGB; m <= pipeline.Mono; m++ {
		for _, s := range []pipeline.Samples{{Bits: 8}, {Bits: 10}, {Bits: 12}, {Bits: 14}, {Bits: 16}, {Bits: 10, Packed: true}, {Bits: 12, Packed: true}} {
			s.Mosaic = m
			p, _ := s.Format()
			list = append(list, p)
		}
	}
	return list
}

// TestGPUSmallest tests the geometries at which mirroring goes back and forth.
func TestGPUSmallest(t *testing.T) {
	memory := cudatest.GPU(t)
	rnd := rand.New(rand.NewPCG(1, 22))
	c := isp.Config{Demosaic: isp.Malvar, Gains: isp.Gains{R: 2, B: 1.5}, Defects: isp.Defects{Threshold: 30}}
	s := newStage(t, memory, c, Options{Cache: t.TempDir()})
	for w := 2; w <= 6; w += 2 {
		for h := 2; h <= 5; h++ {
			in := frame(t, memory, format(t, pipeline.GRBG10, w, h))
			fill(in.Bytes, w+h, rnd)
			want := []pipeline.Format{format(t, pipeline.UYVY, w, h), format(t, pipeline.RGB24, w, h)}
			if err := s.Plan(in.Format, want); err != nil {
				t.Fatal(err)
			}
			outs := frames(t, memory, want)
			if err := s.Process(t.Context(), in, outs); err != nil {
				t.Fatal(err)
			}
			await(t, outs)
			ref, _ := reference(t, c, in, want)
			compare(t, in.Format.String(), outs, ref)
		}
	}
}

// TestGPUPair tests pictures that one kernel makes together, whole and in slices, and frames of which one is not wanted.
func TestGPUPair(t *testing.T) {
	memory := cudatest.GPU(t)
	rnd := rand.New(rand.NewPCG(48, 4))
	cache := t.TempDir()
	pixels := []pipeline.PixelFormat{pipeline.UYVY, pipeline.I420, pipeline.NV12, pipeline.Grey}
	if onCPU() {
		pixels = pixels[:2]
	}
	for n, pixel := range pixels {
		c := isp.Config{Demosaic: isp.Demosaic(1 - n&1), Gains: isp.Gains{R: 2, B: 1.5}, BlackLevel: 16}
		s := newStage(t, memory, c, Options{Transfer: InPlace + Transfer(n%2), Cache: cache})
		for _, size := range [][2]int{{256, 72}, {16, 8}, {528, 36}} {
			in := frame(t, memory, format(t, []pipeline.PixelFormat{pipeline.RGGB10, pipeline.BGGR12P}[n%2], size[0], size[1]))
			fill(in.Bytes, n, rnd)
			full := format(t, pixel, size[0], size[1])
			full.Color = pipeline.BT709Full
			if pixel == pipeline.UYVY {
				full.HeaderGap, full.PacketPitch = 20, 20+full.Stride
			}
			want := []pipeline.Format{format(t, pipeline.I420, size[0]/2, size[1]/2), full}
			if err := s.Plan(in.Format, want); err != nil {
				t.Fatal(err)
			}
			ref, _ := reference(t, c, in, want)
			for missing := range 3 {
				outs := frames(t, memory, want)
				some := slices.Clone(outs)
				if missing < 2 {
					some[missing] = nil
				}
				if err := s.Process(t.Context(), in, some); err != nil {
					t.Fatal(err)
				}
				await(t, some)
				for i, out := range some {
					if out != nil {
						compare(t, in.Format.String(), outs[i:i+1], ref[i:i+1])
					}
				}
			}
			inSlices(t, s, memory, in, ref, rnd)
			if s.plan.program.kernels[kernelKey{"pair", 1, true}] == nil {
				t.Errorf("%s: no kernel has made two", in.Format)
			}
		}
	}
}

// TestGPUUnaligned tests frames that do not begin at a multiple of 16 bytes, for which kernels are compiled when they come.
func TestGPUUnaligned(t *testing.T) {
	memory := cudatest.GPU(t)
	rnd := rand.New(rand.NewPCG(48, 5))
	c := isp.Config{Demosaic: isp.Malvar, Gains: isp.Gains{R: 2, B: 1.5}, BlackLevel: 16}
	s := newStage(t, memory, c, Options{Transfer: InPlace, Cache: t.TempDir()})
	formats := []pipeline.Format{format(t, pipeline.RGGB10, 64, 16), format(t, pipeline.UYVY, 64, 16), format(t, pipeline.NV12, 64, 16)}
	if err := s.Plan(formats[0], formats[1:]); err != nil {
		t.Fatal(err)
	}
	for moved := range 3 {
		var all []*pipeline.Frame
		for i, f := range formats {
			b, err := memory.AllocHost(f.Size()+4, cudahost.Default)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			by := 0
			if i == moved {
				by = 4
			}
			all = append(all, &pipeline.Frame{Format: f, Bytes: b.Bytes()[by:][:f.Size()], Device: b.DevicePointer() + uintptr(by)})
		}
		fill(all[0].Bytes, moved, rnd)
		if err := s.Process(t.Context(), all[0], all[1:]); err != nil {
			t.Fatal(err)
		}
		await(t, all[1:])
		ref, _ := reference(t, c, all[0], formats[1:])
		compare(t, fmt.Sprint("frame ", moved, " is not aligned"), all[1:], ref)
	}
	if s.plan.program.kernels[kernelKey{"picture", 0, false}] == nil || s.plan.program.kernels[kernelKey{"picture", 1, false}] == nil {
		t.Error("no kernels were compiled for memory that is not aligned")
	}
}

// TestGPURealCapture processes the whole capture with all steps at once, with all kinds of transfer.
func TestGPURealCapture(t *testing.T) {
	memory := cudatest.GPU(t)
	in := capture(t, memory)
	shading := &isp.Shading{Columns: 2, Rows: 2}
	for i := range shading.Gains {
		shading.Gains[i] = []float64{1, 1.1, 1.2, 1.3}
	}
	for i, c := range []isp.Config{
		{Gains: isp.Gains{R: 1.75, B: 1.1}, Demosaic: isp.Malvar},
		{
			BlackLevel: 8, Gains: isp.Gains{R: 1.5, B: 1.1}, Demosaic: isp.Malvar, Defects: isp.Defects{Threshold: 60}, Shading: shading,
			Matrix: [9]float64{1.5, -0.3, -0.2, -0.2, 1.5, -0.3, 0, -0.5, 1.5}, Gamma: 2.2, Sharpen: 1,
		},
	} {
		var want []pipeline.Format
		for j, p := range outputs() {
			f := format(t, p, 1920>>(j%2), 1080>>(j%2))
			if p == pipeline.Grey {
				f.Color = pipeline.BT601Limited
			}
			want = append(want, f)
		}
		ref, _ := reference(t, c, in, want)
		for _, transfer := range []Transfer{InPlace, Staged} {
			if onCPU() && int(transfer) == i+1 {
				continue // each configuration once, because they are large
			}
			s := newStage(t, memory, c, Options{Transfer: transfer})
			if err := s.Plan(in.Format, want); err != nil {
				t.Fatal(err)
			}
			outs := frames(t, memory, want)
			if err := s.Process(t.Context(), in, outs); err != nil {
				t.Fatal(err)
			}
			await(t, outs)
			compare(t, fmt.Sprintf("configuration %d, transfer %d", i, transfer), outs, ref)
		}
	}
}

// TestGPUFrames checks that several frames in flight do not interfere, that each has its own gains, that fields are
// kept, and that an output may be nil.
func TestGPUFrames(t *testing.T) {
	memory := cudatest.GPU(t)
	const n = 12
	for _, transfer := range []Transfer{InPlace, Staged} {
		var sequences []uint64
		s := newStage(t, memory, isp.Config{Observe: func(s *isp.Statistics) { sequences = append(sequences, s.Sequence) }}, Options{Transfer: transfer})
		f := format(t, pipeline.RGGB12, 640, 360)
		want := []pipeline.Format{format(t, pipeline.UYVY, 640, 360), format(t, pipeline.I420, 320, 180)}
		if err := s.Plan(f, want); err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(5, 23))
		var ins []*pipeline.Frame
		var outs [][]*pipeline.Frame
		for i := range n {
			in := frame(t, memory, f)
			fill(in.Bytes, 0, rnd)
			in.Sequence, in.Flags, in.Times.Captured = uint64(i), pipeline.FlagPadded, time.Now()
			ins, outs = append(ins, in), append(outs, frames(t, memory, want))
		}
		for i, in := range ins {
			if err := s.SetGains(isp.Gains{R: 1 + float64(i)}); err != nil {
				t.Fatal(err)
			}
			list := []*pipeline.Frame{outs[i][0], outs[i][1]}
			if i == 3 {
				list[0] = nil
			}
			for _, out := range list {
				if out != nil {
					out.Inherit(in) // as the graph does
				}
			}
			if err := s.Process(t.Context(), in, list); err != nil {
				t.Fatal(err)
			}
			clear(list) // the graph reuses it
		}
		if err := s.Process(t.Context(), ins[0], []*pipeline.Frame{nil, nil}); err != nil {
			t.Fatal(err)
		}
		for i, in := range ins {
			ref, _ := reference(t, isp.Config{Gains: isp.Gains{R: 1 + float64(i)}}, in, want)
			got := outs[i]
			if i == 3 {
				got, ref = got[1:], ref[1:]
			}
			await(t, got)
			compare(t, fmt.Sprintf("frame %d", i), got, ref)
			if o := got[0]; o.Sequence != in.Sequence || o.Flags != in.Flags || o.Times.Captured != in.Times.Captured || o.Times.Processed.Before(in.Times.Captured) {
				t.Errorf("frame %d: %d %v %+v", i, o.Sequence, o.Flags, o.Times)
			}
		}
		if len(sequences) != n+1 || sequences[n-1] != n-1 {
			t.Errorf("observed %v", sequences)
		}
	}
}

// TestGPURefused checks that everything that isp.Stage refuses is refused with the same errors.
func TestGPURefused(t *testing.T) {
	memory := cudatest.GPU(t)
	if _, err := New(memory, isp.Config{Gamma: 9}, Options{}); !errors.Is(err, isp.ErrConfig) {
		t.Errorf("gamma 9: %v", err)
	}
	s := newStage(t, memory, isp.Config{BlackLevel: 1000}, Options{})
	if err := s.SetGains(isp.Gains{R: 17}); !errors.Is(err, isp.ErrConfig) {
		t.Errorf("gain 17: %v", err)
	}
	in := frame(t, memory, format(t, pipeline.RGGB10, 16, 16))
	uyvy := format(t, pipeline.UYVY, 16, 16)
	for want, err := range map[string]error{
		"black level 1000: must be from 0 to 254": s.Plan(format(t, pipeline.RGGB8, 16, 16), []pipeline.Format{uyvy}),
		"input UYVY 16x16":                        s.Plan(uyvy, []pipeline.Format{uyvy}),
		"of 16x16, 8x8 or 4x4":                    s.Plan(in.Format, []pipeline.Format{format(t, pipeline.UYVY, 6, 6)}),
		"no formats were planned":                 s.Process(t.Context(), in, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := s.Plan(in.Format, []pipeline.Format{uyvy}); err != nil {
		t.Fatal(err)
	}
	plain := &pipeline.Frame{Format: uyvy, Bytes: make([]byte, uyvy.Size())}
	if err := s.Process(t.Context(), in, []*pipeline.Frame{plain}); !errors.Is(err, isp.ErrMismatch) || !strings.Contains(err.Error(), "no device address") {
		t.Errorf("memory of Go: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Process(ctx, in, frames(t, memory, []pipeline.Format{uyvy})); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Process(t.Context(), in, nil); !errors.Is(err, isp.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.Plan(in.Format, nil); !errors.Is(err, isp.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
