// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"math/rand/v2"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// BenchmarkHeatMap measures maps of 1920 x 1080: parts of the size of words, pixels that are all above the threshold, a dot
// on every fourth pixel, a stripe on every second column, and noise.
func BenchmarkHeatMap(b *testing.B) {
	const w, h = 1920, 1080
	r := rand.New(rand.NewPCG(7, 8))
	for name, at := range map[string]func(x, y int) bool{
		"words": func(x, y int) bool { return x%200 < 80 && y%60 < 20 }, "full": func(int, int) bool { return true },
		"dots": func(x, y int) bool { return x%2 == 0 && y%2 == 0 }, "stripes": func(x, _ int) bool { return x%2 == 0 },
		"noise": func(int, int) bool { return r.IntN(3) == 0 },
	} {
		heat := make([]float32, w*h)
		for i := range heat {
			heat[i] = -1
			if at(i%w, i/w) {
				heat[i] = r.Float32()
			}
		}
		for _, made := range []string{"Sigmoid", "logits"} {
			b.Run(name+"/"+made, func(b *testing.B) {
				c := Config{Kind: HeatMap, Threshold: 0.4, Operators: map[string]string{"map": made}, Outputs: []tensor.Info{info("map", tensor.Float32, h, w)}}
				benchmark(b, c, tensor.Placement{ScaleX: 1, ScaleY: 1, Width: w, Height: h}, floats("map", heat, h, w))
			})
		}
	}
}

func BenchmarkDetections(b *testing.B) {
	for name, n := range map[string]int{"100": 100, "100000": 100_000} {
		for suppress, nms := range map[string]float64{"best": 0, "nms": 0.5} {
			b.Run(name+"/"+suppress, func(b *testing.B) {
				boxes, scores, labels, at := apart(n)
				benchmark(b, Config{Kind: Detections, NMS: nms, Outputs: detectionInfos}, at, detected(boxes, scores, labels)...)
			})
		}
	}
}

func BenchmarkClasses(b *testing.B) {
	scores := make([]float32, 1000)
	for i := range scores {
		scores[i] = rand.Float32() * 10
	}
	benchmark(b, Config{Kind: Classes, Outputs: []tensor.Info{info("out", tensor.Float32, 1, 1000)}}, tensor.Placement{}, floats("out", scores, 1, 1000))
}

func benchmark(b *testing.B, c Config, at tensor.Placement, outputs ...tensor.Tensor) {
	p := mustNew(b, c)
	var got pipeline.Result
	b.ReportAllocs()
	for b.Loop() {
		got.Regions = got.Regions[:0]
		process(b, p, &got, at, outputs...)
	}
}
