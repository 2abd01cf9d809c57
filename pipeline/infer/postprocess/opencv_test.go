// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"bufio"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// askOpenCV returns a function that asks testdata/opencv.py.
func askOpenCV(t *testing.T) func(question, answer any) {
	t.Helper()
	in, out := infertest.StartPython(t, "testdata/opencv.py")
	asks, answers := json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	return func(question, answer any) {
		t.Helper()
		if err := asks.Encode(question); err != nil {
			t.Fatal(err)
		}
		if err := answers.Decode(answer); err != nil {
			t.Fatal(err)
		}
	}
}

// randomMap returns a map of w x h pixels. Its components have the size of cells; share of them are above 0.5.
func randomMap(r *rand.Rand, w, h, cell int, share float64) []float32 {
	all := make([]float32, w*h)
	cells := make([]float32, (w/cell+1)*(h/cell+1))
	for i := range cells {
		if r.Float64() < share {
			cells[i] = 0.5
		}
	}
	for i := range all {
		all[i] = cells[i/w/cell*(w/cell+1)+i%w/cell] + r.Float32()/2
	}
	return all
}

// TestHeatMapIsOpenCVs checks that random maps have the rectangles of OpenCV's outer contours, with the mean probability.
func TestHeatMapIsOpenCVs(t *testing.T) {
	ask, r := askOpenCV(t), rand.New(rand.NewPCG(1, 2))
	regions := 0
	for n := range 200 {
		w, h := 1+r.IntN(90), 1+r.IntN(90)
		heat := randomMap(r, w, h, 1+r.IntN(5), r.Float64())
		if n%10 == 0 { // borders, rings in rings, and a comb
			for i := range heat {
				x, y := i%w, i/w
				ring := min(x, y, w-1-x, h-1-y)
				heat[i] = float32([]int{1 - ring%2, 1 - max(ring%3-1, 0), x % 2 * min(y, 1)}[n/10%3])
			}
		}
		var want [][5]float64
		ask(map[string]any{"width": w, "height": h, "threshold": 0.5, "map": bytesOf(heat)}, &want)
		p := mustNew(t, Config{Kind: HeatMap, Threshold: 0.5, Operators: sigmoidMade, Outputs: []tensor.Info{info("map", tensor.Float32, h, w)}})
		p.found.most = 1 << 20 // a random map has more than the limit
		var got pipeline.Result
		process(t, p, &got, tensor.Placement{ScaleX: 1, ScaleY: 1, Width: w, Height: h}, floats("map", heat, h, w))
		regions += len(want)
		if len(got.Regions) != len(want) {
			t.Fatalf("map %d, %d x %d: %d regions, OpenCV finds %d", n, w, h, len(got.Regions), len(want))
		}
		for _, g := range got.Regions {
			same := func(r [5]float64) bool {
				return r[0] == float64(g.X) && r[1] == float64(g.Y) && r[2] == float64(g.Width) && r[3] == float64(g.Height) && math.Abs(r[4]-g.Score) < 1e-6
			}
			i := slices.IndexFunc(want, same)
			if i < 0 {
				t.Fatalf("map %d, %d x %d: OpenCV does not find %+v; what is left is %v", n, w, h, g, want)
			}
			want = slices.Delete(want, i, i+1)
		}
	}
	t.Logf("%d regions", regions)
}

// TestNMSIsOpenCVs checks that of random boxes those are kept that OpenCV keeps, in its order.
func TestNMSIsOpenCVs(t *testing.T) {
	ask, r := askOpenCV(t), rand.New(rand.NewPCG(3, 4))
	for n := range 100 {
		count, nms := r.IntN(120), 0.1+0.8*r.Float64()
		boxes, edges, scores := make([][4]int, count), make([]float32, 0, 4*count), make([]float32, count)
		for i := range boxes {
			x, y, w, h := r.IntN(60), r.IntN(60), 1+r.IntN(40), 1+r.IntN(40)
			boxes[i] = [4]int{x, y, w, h}
			edges = append(edges, float32(x), float32(y), float32(x+w), float32(y+h))
			scores[i] = float32(r.IntN(1000)) / 1000
		}
		want := []int{}
		ask(map[string]any{"boxes": boxes, "scores": scores, "threshold": 0.25, "nms": nms}, &want)
		p := mustNew(t, Config{Kind: Detections, Threshold: math.Nextafter(float64(float32(0.25)), 1), NMS: nms, Outputs: detectionInfos})
		var got pipeline.Result
		process(t, p, &got, tensor.Placement{ScaleX: 1, ScaleY: 1, Width: 100, Height: 100}, detected(edges, scores, make([]int64, count))...)
		if len(got.Regions) != len(want) {
			t.Fatalf("set %d, nms %v: %d boxes are kept, OpenCV keeps %d", n, nms, len(got.Regions), len(want))
		}
		for i, g := range got.Regions {
			b := boxes[want[i]]
			if b != [4]int{g.X, g.Y, g.Width, g.Height} || float32(g.Score) != scores[want[i]] {
				t.Fatalf("set %d, nms %v: box %d is %+v, OpenCV's %v", n, nms, i, g, b)
			}
		}
	}
}
