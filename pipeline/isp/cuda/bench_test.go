// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// rings is the number of frames used in turn, so that none is in a cache.
const rings = 6

// A benchCase is a configuration with its formats.
type benchCase struct {
	name   string
	config isp.Config
	in     pipeline.PixelFormat
	want   []pipeline.PixelFormat
	ready  bool // packet-ready, with room for headers
}

func benchCases() []benchCase {
	plain := isp.Config{Gains: isp.Gains{R: 1.5, B: 1.1}, BlackLevel: 64}
	with := func(set func(*isp.Config)) isp.Config { c := plain; set(&c); return c }
	malvar := func(c *isp.Config) { c.Demosaic = isp.Malvar }
	matrix := func(c *isp.Config) {
		c.Demosaic, c.Matrix = isp.Malvar, [9]float64{1.5, -0.3, -0.2, -0.2, 1.5, -0.3, 0, -0.5, 1.5}
	}
	shading := func(c *isp.Config) {
		matrix(c)
		c.Shading = &isp.Shading{Columns: 2, Rows: 2, Gains: [4][]float64{{1, 1, 1, 1.1}, {1, 1, 1, 1.1}, {1, 1, 1, 1.1}, {1, 1, 1, 1.1}}}
	}
	all := func(c *isp.Config) {
		shading(c)
		c.Sharpen, c.Defects.Threshold, c.Observe = 0.5, 80, func(*isp.Statistics) {}
	}
	rgb, uyvy := []pipeline.PixelFormat{pipeline.RGB24}, []pipeline.PixelFormat{pipeline.UYVY}
	return []benchCase{
		{"bilinear-rgb24", plain, pipeline.RGGB16, rgb, false},
		{"malvar-rgb24", with(malvar), pipeline.RGGB16, rgb, false},
		{"malvar-matrix-rgb24", with(matrix), pipeline.RGGB16, rgb, false},
		{"malvar-matrix-shading-rgb24", with(shading), pipeline.RGGB16, rgb, false},
		{"malvar-uyvy", with(malvar), pipeline.RGGB10, uyvy, false},
		{"malvar-uyvy-packets", with(malvar), pipeline.RGGB10, uyvy, true},
		{"malvar-uyvp", with(malvar), pipeline.RGGB10, []pipeline.PixelFormat{pipeline.UYVP}, false},
		{"malvar-nv12", with(malvar), pipeline.RGGB12P, []pipeline.PixelFormat{pipeline.NV12}, false},
		{"malvar-uyvy+half-i420", with(malvar), pipeline.RGGB10, []pipeline.PixelFormat{pipeline.UYVY, pipeline.I420}, false},
		{"statistics-uyvy", with(func(c *isp.Config) { malvar(c); c.Observe = func(*isp.Statistics) {} }), pipeline.RGGB10, uyvy, false},
		{"everything-rgb24", with(all), pipeline.RGGB16, rgb, false},
		{"malvar-uyvy-90-degrees", with(func(c *isp.Config) { malvar(c); c.Turn = isp.NewTurn(false, false, 90) }), pipeline.RGGB10, uyvy, false},
	}
}

func (c *benchCase) formats(t testing.TB, by int) (in pipeline.Format, want []pipeline.Format) {
	w, h := 1920*by, 1080*by
	across, down := c.config.Turn.Size(w, h)
	for i, p := range c.want {
		f := format(t, p, across>>i, down>>i)
		if c.ready {
			f.HeaderGap, f.PacketPitch = 20, 20+f.Stride/3/by
		}
		want = append(want, f)
	}
	return format(t, c.in, w, h), want
}

// BenchmarkGPUKernels runs only a frame's kernels, one after another, on frames in device memory.
func BenchmarkGPUKernels(b *testing.B) {
	for _, c := range benchCases() {
		for _, by := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%dp", c.name, 1080*by), func(b *testing.B) {
				memory := cudatest.GPU(b)
				s := newStage(b, memory, c.config, Options{Transfer: InPlace})
				s.linked = false
				inFormat, want := c.formats(b, by)
				if err := s.Plan(inFormat, want); err != nil {
					b.Fatal(err)
				}
				sample := frame(b, memory, inFormat)
				if c.in == pipeline.RGGB10 {
					chart := capture(b, memory)
					for i := range sample.Bytes {
						sample.Bytes[i] = chart.Bytes[i%len(chart.Bytes)]
					}
				} else {
					for i := range sample.Bytes { // gradients, as in real pictures
						sample.Bytes[i] = byte(i / 2 % inFormat.Width / 16)
					}
				}
				onDevice := func(f pipeline.Format) *pipeline.Frame {
					m, err := memory.Device.AllocDevice(f.Size())
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { _ = m.Close() })
					if f == inFormat {
						if err := m.Write(sample.Bytes); err != nil {
							b.Fatal(err)
						}
					}
					return &pipeline.Frame{Format: f, Device: m.Pointer}
				}
				var ins []*pipeline.Frame
				var outs [][]*pipeline.Frame
				for i := range rings {
					ins, outs = append(ins, onDevice(inFormat)), append(outs, nil)
					for _, f := range want {
						outs[i] = append(outs[i], onDevice(f))
					}
				}
				n := 0
				b.ResetTimer()
				for b.Loop() {
					if err := enqueueFrame(s, ins[n%rings], outs[n%rings]); err != nil {
						b.Fatal(err)
					}
					if n++; n%256 == 0 {
						if err := s.synchronize(); err != nil {
							b.Fatal(err)
						}
					}
				}
				if err := s.synchronize(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "us/frame")
			})
		}
	}
}

// enqueueFrame enqueues a complete frame.
func enqueueFrame(s *Stage, in *pipeline.Frame, outs []*pipeline.Frame) error {
	j := &s.plan.jobs[0]
	s.prepareJob(j, in)
	return s.enqueue(j, in, outs, in.Format.Height)
}

// BenchmarkGPUStage runs complete frames from host memory to host memory through Process, with as many in flight as
// possible. The latency is that of a single frame.
func BenchmarkGPUStage(b *testing.B) {
	for _, c := range benchCases() {
		for _, by := range []int{1, 2} {
			for _, transfer := range []Transfer{InPlace, Staged} {
				b.Run(fmt.Sprintf("%s/%dp/%s", c.name, 1080*by, [...]string{"", "in-place", "staged"}[transfer]), func(b *testing.B) {
					memory := cudatest.GPU(b)
					s := newStage(b, memory, c.config, Options{Transfer: transfer})
					inFormat, want := c.formats(b, by)
					if err := s.Plan(inFormat, want); err != nil {
						b.Fatal(err)
					}
					var ins []*pipeline.Frame
					var outs [][]*pipeline.Frame
					for range rings {
						ins, outs = append(ins, frame(b, memory, inFormat)), append(outs, frames(b, memory, want))
					}
					n := 0
					process := func() {
						if err := s.Process(b.Context(), ins[n%rings], outs[n%rings]); err != nil {
							b.Fatal(err)
						}
						n++
					}
					process()
					await(b, outs[0])
					b.ReportAllocs()
					b.ResetTimer()
					for b.Loop() {
						process()
					}
					await(b, outs[(n-1)%rings])
					b.StopTimer()
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "us/frame")
					b.ReportMetric(float64(latency(process, func() { await(b, outs[(n-1)%rings]) })), "us-latency")
				})
			}
		}
	}
}

// latency returns the time for a single frame in microseconds, as the median of many.
func latency(process, wait func()) int64 {
	var times []time.Duration
	for range 51 {
		begin := time.Now()
		process()
		wait()
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	return times[len(times)/2].Microseconds()
}

// BenchmarkGPUCopy copies a 4K frame of 16 bits from host memory to device memory and back.
func BenchmarkGPUCopy(b *testing.B) {
	memory := cudatest.GPU(b)
	host, err := memory.AllocHost(3840*2160*2, cudahost.Mapped)
	if err != nil {
		b.Fatal(err)
	}
	defer host.Close()
	device, err := memory.Device.AllocDevice(3840 * 2160 * 2)
	if err != nil {
		b.Fatal(err)
	}
	defer device.Close()
	s, err := memory.Device.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	lines := cudahost.Lines{Width: 3840 * 2, Height: 2160, Stride: 3840 * 2}
	for name, copies := range map[string]func(to, from uintptr, l cudahost.Lines) error{"in": s.CopyIn, "out": s.CopyOut} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(3840 * 2160 * 2)
			for b.Loop() {
				to, from := device.Pointer, host.Addr()
				if name == "out" {
					to, from = from, to
				}
				if err := copies(to, from, lines); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Synchronize(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkGPUAllocations measures the cost of a small frame to the process, in time and allocations, independently of
// the kernels.
func BenchmarkGPUAllocations(b *testing.B) {
	for _, transfer := range []Transfer{InPlace, Staged} {
		for _, c := range []benchCase{benchCases()[0], benchCases()[9]} {
			b.Run(fmt.Sprintf("%s/%s", c.name, [...]string{"", "in-place", "staged"}[transfer]), func(b *testing.B) {
				memory := cudatest.GPU(b)
				s := newStage(b, memory, c.config, Options{Transfer: transfer})
				in, want := format(b, c.in, 64, 32), []pipeline.Format{format(b, c.want[0], 64, 32)}
				if err := s.Plan(in, want); err != nil {
					b.Fatal(err)
				}
				from, outs := frame(b, memory, in), frames(b, memory, want)
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Process(b.Context(), from, outs); err != nil {
						b.Fatal(err)
					}
					await(b, outs)
				}
			})
		}
	}
}
