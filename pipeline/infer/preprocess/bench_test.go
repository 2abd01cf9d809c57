// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// spent returns this process's processor time in nanoseconds.
func spent(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// hostMemory returns memory as frames have: the host's, of huge pages.
func hostMemory(b *testing.B, size int) []byte {
	b.Helper()
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	m, err := memory.AllocHost(size, cudahost.Default)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(m.Close(), memory.Close()); err != nil {
			b.Error(err)
		}
	})
	return m.Bytes()
}

// cases are tensors of frames of 1080p: those of detectors, and of classifiers.
func cases(t testing.TB, pixel pipeline.PixelFormat) (list []Config) {
	f := format(t, pixel, 1920, 1080)
	if pixel != pipeline.Grey && pixel != pipeline.RGB24 {
		f.Color = pipeline.BT601Limited // OpenCV's
	}
	for _, c := range []Config{{Width: 640, Height: 640, Letterbox: true}, {Width: 640, Height: 360}, {Width: 224, Height: 224}} {
		c.Format, c.Fill, c.Channels, c.Type = f, 114, 3, tensor.Float32
		c.Mean, c.Scale = [3]float64{104, 117, 123}, [3]float64{1. / 255, 1. / 255, 1. / 255}
		if pixel == pipeline.Grey {
			c.Channels, c.Mean = 1, [3]float64{104}
		}
		list = append(list, c)
	}
	return list
}

// BenchmarkBesideOpenCV takes turns with OpenCV on one thread: blob is cvtColor, resize for a letterbox, and blobFromImage,
// array is cvtColor and resize, and NumPy for the rest. x-blob and x-array say how many times the processor time of Process
// they take, in the median of the rounds, and the least.
func BenchmarkBesideOpenCV(b *testing.B) {
	peer := openPeer(b)
	for _, pixel := range []pipeline.PixelFormat{pipeline.RGB24, pipeline.UYVY, pipeline.NV12, pipeline.Grey} {
		for _, c := range cases(b, pixel) {
			b.Run(fmt.Sprintf("%s/%dx%d", pixel, c.Width, c.Height), func(b *testing.B) {
				p := preprocessor(b, c)
				pixels, into := hostMemory(b, c.Format.Size()), hostMemory(b, p.bytes)
				copy(pixels, picture1080(b, c.Format))
				p.Process(pixels, into)
				for _, way := range []string{"blob", "array"} {
					peer.do(b, c, pixels, way, 3)
				}
				ratios, ours := map[string][]float64{}, int64(1)<<62
				for range 21 {
					const frames = 20
					begin := spent(b)
					for range frames {
						p.Process(pixels, into)
					}
					each := (spent(b) - begin) / frames
					ours = min(ours, each)
					for _, way := range []string{"blob", "array"} {
						ratios[way] = append(ratios[way], float64(peer.do(b, c, nil, way, 5))/float64(each))
					}
				}
				for way, list := range ratios {
					slices.Sort(list)
					b.ReportMetric(list[len(list)/2], "x-"+way)
					b.ReportMetric(list[0], "x-"+way+"-least")
				}
				b.ReportMetric(float64(ours), "cpu-ns/frame")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkProcess measures layouts and types.
func BenchmarkProcess(b *testing.B) {
	for _, pixel := range formats {
		for _, c := range cases(b, pixel)[1:2] {
			for _, c.Type = range []tensor.Type{tensor.Float32, tensor.Float16, tensor.Uint8} {
				for _, c.NHWC = range []bool{false, true} {
					b.Run(fmt.Sprintf("%s/%dx%d/%s/nhwc=%v", pixel, c.Width, c.Height, c.Type, c.NHWC), func(b *testing.B) {
						p := preprocessor(b, c)
						pixels, into := hostMemory(b, c.Format.Size()), hostMemory(b, p.bytes)
						b.ReportAllocs()
						for b.Loop() {
							p.Process(pixels, into)
						}
					})
				}
			}
		}
	}
}
