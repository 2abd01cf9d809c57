// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"math"
	"reflect"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// TestDetectionsHaveRegions checks which boxes become regions, with which labels.
func TestDetectionsHaveRegions(t *testing.T) {
	box := func(x0, y0, x1, y1 float32) []float32 { return []float32{x0, y0, x1, y1} }
	region := func(x, y, w, h int, label string, score float64) pipeline.Region {
		return pipeline.Region{X: x, Y: y, Width: w, Height: h, Label: label, Score: score}
	}
	for name, c := range map[string]struct {
		config Config
		boxes  [][]float32
		scores []float32
		labels []int64
		want   []pipeline.Region
	}{
		"none": {Config{}, nil, nil, nil, nil},
		"best first": {
			Config{Labels: []string{"a", "b"}},
			[][]float32{box(0, 0, 9, 8), box(1, 2, 3, 5)},
			[]float32{0.5, 0.75},
			[]int64{0, 1},
			[]pipeline.Region{region(1, 2, 2, 3, "b", 0.75), region(0, 0, 9, 8, "a", 0.5)},
		},
		"threshold": {
			Config{Threshold: 0.5},
			[][]float32{box(0, 0, 9, 8), box(1, 2, 3, 5)},
			[]float32{0.25, 0.5},
			[]int64{7, 7},
			[]pipeline.Region{region(1, 2, 2, 3, "class 7", 0.5)},
		},
		"labels out of range": {
			Config{Labels: []string{"a", ""}},
			[][]float32{box(0, 0, 1, 1), box(0, 0, 1, 1), box(0, 0, 1, 1)},
			[]float32{1, 0.75, 0.5},
			[]int64{math.MinInt64, math.MaxInt64, 1},
			[]pipeline.Region{
				region(0, 0, 1, 1, "class -9223372036854775808", 1), region(0, 0, 1, 1, "class 9223372036854775807", 0.75), region(0, 0, 1, 1, "class 1", 0.5),
			},
		},
		"scores of no use": {
			Config{},
			[][]float32{box(0, 0, 1, 1), box(0, 0, 2, 2), box(0, 0, 3, 3), box(0, 0, 4, 4)},
			[]float32{nan, inf, -inf, -1},
			make([]int64, 4),
			[]pipeline.Region{region(0, 0, 2, 2, "class 0", 1)},
		},
		"boxes of no use": {
			Config{}, [][]float32{
				box(nan, 0, 1, 1), box(0, 0, inf, 1), box(0, -inf, 1, 1), box(5, 0, 4, 9), box(5, 5, 5, 9), box(-9, 0, -1, 9), box(100, 0, 109, 9),
				box(1, 1, 1.25, 9),
			}, []float32{1, 1, 1, 1, 1, 1, 1, 1}, make([]int64, 8), nil,
		},
		"clipped and rounded": {
			Config{Width: 50},
			[][]float32{box(-3e38, -9, 3e38, 300), box(0.6, 0.4, 1.6, 1.5)},
			[]float32{1, 0.5},
			[]int64{0, 0},
			[]pipeline.Region{region(0, 0, 50, 100, "class 0", 1), region(1, 0, 1, 2, "class 0", 0.5)},
		},
		"NMS": { // of the others, one has another label, one a smaller overlap (1/3), and one only a better box that is itself left out
			Config{NMS: 0.5},
			[][]float32{box(0, 0, 10, 10), box(2, 0, 12, 10), box(0, 0, 10, 10), box(5, 0, 15, 10)},
			[]float32{1, 0.75, 0.5, 0.25},
			[]int64{1, 1, 2, 1},
			[]pipeline.Region{region(0, 0, 10, 10, "class 1", 1), region(0, 0, 10, 10, "class 2", 0.5), region(5, 0, 10, 10, "class 1", 0.25)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Kind, c.config.Outputs = Detections, detectionInfos
			p := mustNew(t, c.config)
			for range 2 {
				var got pipeline.Result
				var boxes []float32
				for _, b := range c.boxes {
					boxes = append(boxes, b...)
				}
				process(t, p, &got, square, detected(boxes, c.scores, c.labels)...)
				if !reflect.DeepEqual(got, pipeline.Result{Regions: c.want}) {
					t.Errorf("%+v\nmust be %+v", got, c.want)
				}
			}
		})
	}
}

// apart returns n boxes of which none overlaps another one. The last one has the best score.
func apart(n int) (boxes, scores []float32, labels []int64, at tensor.Placement) {
	for i := range n {
		x, y := float32(i%1000*2), float32(i/1000*2)
		boxes = append(boxes, x, y, x+1, y+1)
		scores = append(scores, float32(i+1)/float32(n))
	}
	return boxes, scores, make([]int64, n), tensor.Placement{ScaleX: 1, ScaleY: 1, Width: 2000, Height: 2000}
}

// TestManyDetections checks that the best 512 are returned and the others counted, also with NMS, which leaves out those
// that overlap without counting them.
func TestManyDetections(t *testing.T) {
	for _, c := range []struct {
		boxes, twice int
		nms, leftOut float64
	}{
		{maxRegions, 0, 0, 0},
		{maxRegions + 1, 0, 0, 1},
		{100_000, 0, 0, 100_000 - maxRegions},
		{2 * maxRegions, 0, 0.5, maxRegions},
		{100_000, 0, 0.5, 100_000 - maxRegions},
		{1000, 600, 0.5, 976}, // 488 boxes and the copies of 488
	} {
		boxes, scores, labels, at := apart(c.boxes)
		for i := range c.twice {
			boxes, scores, labels = append(boxes, boxes[4*i:4*i+4]...), append(scores, scores[i]/2), append(labels, 0)
		}
		var got pipeline.Result
		process(t, mustNew(t, Config{Kind: Detections, NMS: c.nms, Outputs: detectionInfos}), &got, at, detected(boxes, scores, labels)...)
		if n := got.Numbers[LeftOut]; len(got.Regions) != min(c.boxes, maxRegions) || n != c.leftOut {
			t.Errorf("%+v: %d regions, %v are left out", c, len(got.Regions), n)
		}
		for i, r := range got.Regions {
			if at := c.boxes - 1 - i; r.X != at%1000*2 || r.Y != at/1000*2 {
				t.Errorf("%+v: region %d is %+v", c, i, r)
				break
			}
		}
	}
}
