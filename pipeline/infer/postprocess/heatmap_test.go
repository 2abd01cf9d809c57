// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// picture returns a map with 0.75 where lines have an x, NaN where they have ?, and otherwise 0.25.
func picture(lines ...string) (heat []float32, w, h int) {
	for _, l := range lines {
		for _, c := range l {
			heat = append(heat, map[rune]float32{'x': 0.75, '?': nan, '.': 0.25, '+': inf, '-': -inf}[c])
		}
	}
	return heat, len(lines[0]), len(lines)
}

func TestHeatMapHasRegions(t *testing.T) {
	double := tensor.Placement{X: 10, Y: 20, ScaleX: 2, ScaleY: 4, Width: 60, Height: 30} // 10 pixels of the tensor are one of a map of 6 x 3
	for name, c := range map[string]struct {
		config Config
		at     tensor.Placement
		lines  []string
		want   []pipeline.Region
	}{
		"nothing":         {Config{}, double, []string{"......"}, nil},
		"NaN and -Inf":    {Config{}, double, []string{"??--??"}, nil},
		"placed":          {Config{}, double, []string{"......", ".xx...", "......"}, []pipeline.Region{{X: 30, Y: 60, Width: 40, Height: 40, Score: 0.75}}},
		"corners touch":   {Config{}, double, []string{"x.....", ".x....", "x....."}, []pipeline.Region{{X: 10, Y: 20, Width: 40, Height: 120, Score: 0.75}}},
		"infinite is one": {Config{}, double, []string{"+.....", "......", "......"}, []pipeline.Region{{X: 10, Y: 20, Width: 20, Height: 40, Score: 1}}},
		"a label": {
			Config{Labels: []string{"text"}},
			double,
			[]string{"x.....", "......", "......"},
			[]pipeline.Region{{X: 10, Y: 20, Width: 20, Height: 40, Label: "text", Score: 0.75}},
		},
		"arms join":        {Config{}, square, []string{"x.x.x", "x.x.x", "xxxxx"}, []pipeline.Region{{Width: 100, Height: 100, Score: 0.75}}},
		"an arm is longer": {Config{}, square, []string{"....x", "x...x", "x...x", "xxxxx"}, []pipeline.Region{{Width: 100, Height: 100, Score: 0.75}}},
		"grown by a half":  {Config{Expand: 2}, square, []string{"....", ".xx.", ".xx.", "...."}, []pipeline.Region{{Width: 100, Height: 100, Score: 0.75}}},
		"grown by quarter": {Config{Expand: 1}, square, []string{"....", "....", "..x.", "...."}, []pipeline.Region{{X: 44, Y: 44, Width: 37, Height: 37, Score: 0.75}}},
		"clipped": {
			Config{Width: 20, Height: 90}, double, []string{"x....x", "x....x", "x....x"}, []pipeline.Region{{X: 10, Y: 20, Width: 10, Height: 70, Score: 0.75}},
		},
		"a letterbox": { // the input reaches beyond the frame on both sides
			Config{Width: 20, Height: 20},
			tensor.Placement{X: -10, ScaleX: 1, ScaleY: 1, Width: 40, Height: 20},
			[]string{"x.xx", "....", "x..."},
			[]pipeline.Region{{X: 10, Width: 10, Height: 7, Score: 0.75}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			heat, w, h := picture(c.lines...)
			for _, shape := range [][]int{{h, w}, {1, h, w}, {1, 1, h, w}} {
				for _, raw := range []bool{false, true} {
					c.config.Kind, c.config.Threshold, c.config.Operators = HeatMap, 0.5, sigmoidMade
					c.config.Outputs = []tensor.Info{info("map", tensor.Float32, append(slices.Clone(shape[:len(shape)-2]), -1, -1)...)}
					pixels := heat
					if raw {
						c.config.Operators, pixels = nil, nil
						for _, x := range heat {
							if !math.IsInf(float64(x), 0) {
								x = float32(math.Log(float64(x) / (1 - float64(x))))
							}
							pixels = append(pixels, x)
						}
					}
					var got pipeline.Result
					process(t, mustNew(t, c.config), &got, c.at, floats("map", pixels, shape...))
					for i := range got.Regions {
						got.Regions[i].Score = math.Round(got.Regions[i].Score*1e5) / 1e5
					}
					if !reflect.DeepEqual(got, pipeline.Result{Regions: c.want}) {
						t.Errorf("%v: %+v\nmust be %+v", shape, got, c.want)
					}
				}
			}
		})
	}
}

// TestManyComponents checks that of a map with a dot on every fourth pixel the 512 best are returned, that the others are
// counted, that the memory is that of a line, and that none is allocated for the next map.
func TestManyComponents(t *testing.T) {
	const w, h = 1280, 720
	heat := make([]float32, w*h)
	r := rand.New(rand.NewPCG(5, 6))
	for y := 0; y < h; y += 2 {
		for x := 0; x < w; x += 2 {
			heat[y*w+x] = 0.5 + r.Float32()/4
			if x == y {
				heat[y*w+x] = 1 - float32(y)/8192 // the best, of which the first is the highest
			}
		}
	}
	p := mustNew(t, Config{Kind: HeatMap, Threshold: 0.25, Operators: sigmoidMade, Outputs: []tensor.Info{info("map", tensor.Float32, h, w)}})
	outputs := []tensor.Tensor{floats("map", heat, h, w)}
	at := tensor.Placement{ScaleX: 1, ScaleY: 1, Width: w, Height: h}
	var got pipeline.Result
	process(t, p, &got, at, outputs...)
	if n := got.Numbers[LeftOut]; len(got.Regions) != maxRegions || n != w*h/4-maxRegions {
		t.Fatalf("%d regions, %v are left out of %d", len(got.Regions), n, w*h/4)
	}
	for i, r := range got.Regions[:h/2] {
		if r.X != 2*i || r.Y != 2*i || r.Width != 1 || r.Height != 1 {
			t.Fatalf("region %d is %+v", i, r)
		}
	}
	if c := &p.lines; cap(c.live)+cap(c.kept)+cap(c.runs)+cap(c.above) > 8*w || cap(p.found.list) > 4*maxRegions {
		t.Errorf("memory of %d and %d components, %d and %d runs and %d regions", cap(c.live), cap(c.kept), cap(c.runs), cap(c.above), cap(p.found.list))
	}
	if n := testing.AllocsPerRun(2, func() {
		got.Regions = got.Regions[:0]
		process(t, p, &got, at, outputs...)
	}); n > 0 {
		t.Errorf("%v allocations for a map", n)
	}
}

func TestSigmoidIsExact(t *testing.T) {
	for i := range 1 << 16 {
		x := float32(i-1<<15) / 1000
		if want := 1 / (1 + math.Exp(-float64(x))); math.Abs(float64(sigmoid(x))-want) > 1e-6 {
			t.Fatalf("sigmoid(%v) is %v, must be %v", x, sigmoid(x), want)
		}
	}
	if sigmoid(inf) < 1-1e-6 || sigmoid(-inf) > 1e-6 {
		t.Error(sigmoid(inf), sigmoid(-inf))
	}
}
