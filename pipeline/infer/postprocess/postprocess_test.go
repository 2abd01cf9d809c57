// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

var (
	nan, inf    = float32(math.NaN()), float32(math.Inf(1))
	sigmoidMade = map[string]string{"map": "Sigmoid"}
	square      = tensor.Placement{ScaleX: 1, ScaleY: 1, Width: 100, Height: 100}

	detectionInfos = []tensor.Info{
		info("labels", tensor.Int64, -1), info("boxes", tensor.Float32, -1, 4), info("scores", tensor.Float32, -1),
	}
)

func info(name string, kind tensor.Type, shape ...int) tensor.Info {
	i := tensor.Info{Name: name, Type: kind}
	for _, d := range shape {
		i.Shape = append(i.Shape, int64(d))
	}
	return i
}

// bytesOf returns the memory of numbers.
func bytesOf[E float32 | int64](numbers []E) []byte {
	if len(numbers) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&numbers[0])), len(numbers)*int(unsafe.Sizeof(numbers[0])))
}

func floats(name string, numbers []float32, shape ...int) tensor.Tensor {
	return tensor.Tensor{Info: info(name, tensor.Float32, shape...), Data: bytesOf(numbers)}
}

// detected returns the outputs of detectionInfos.
func detected(boxes, scores []float32, labels []int64) []tensor.Tensor {
	return []tensor.Tensor{
		{Info: info("labels", tensor.Int64, len(labels)), Data: bytesOf(labels)}, floats("boxes", boxes, len(boxes)/4, 4), floats("scores", scores, len(scores)),
	}
}

func mustNew(t testing.TB, c Config) *Postprocessor {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func process(t testing.TB, p *Postprocessor, into *pipeline.Result, at tensor.Placement, outputs ...tensor.Tensor) {
	t.Helper()
	if err := p.Process(outputs, at, into); err != nil {
		t.Fatal(err)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxLabel+1)
	of := func(o ...tensor.Info) []tensor.Info { return o }
	class, heat := of(info("out", tensor.Float32, 1, 3)), of(info("map", tensor.Float32, 1, 1, -1, -1))
	for want, c := range map[string]Config{
		`kind "yolo": must be classes, heatmap or detections`:                             {Kind: "yolo"},
		"threshold NaN: must be 0 to 1":                                                   {Kind: Classes, Threshold: math.NaN(), Outputs: class},
		"threshold 1.5: must be 0 to 1":                                                   {Kind: Classes, Threshold: 1.5, Outputs: class},
		"nms -1: must be 0 to 1":                                                          {Kind: Detections, NMS: -1, Outputs: detectionInfos},
		"nms: is for kind detections":                                                     {Kind: HeatMap, NMS: 0.5, Outputs: heat},
		"expand: is for kind heatmap":                                                     {Kind: Classes, Expand: 1.5, Outputs: class},
		"expand +Inf: must be 0 to 100":                                                   {Kind: HeatMap, Expand: math.Inf(1), Outputs: heat},
		"frames of -1 x 5 pixels":                                                         {Kind: HeatMap, Width: -1, Height: 5, Outputs: heat},
		"2 labels: the regions of a heat map have one":                                    {Kind: HeatMap, Labels: []string{"a", "b"}, Outputs: heat},
		"label 1: 257 bytes, and at most 256 are allowed":                                 {Kind: Classes, Labels: []string{"", long, ""}, Outputs: class},
		`label 0: "\xff" is not UTF-8`:                                                    {Kind: Classes, Labels: []string{"\xff", "b", "c"}, Outputs: class},
		`output "out" has 3 classes, and there are 2 labels`:                              {Kind: Classes, Labels: []string{"a", "b"}, Outputs: class},
		"needs a model with the outputs [classes: float32 [1 ?] or [?]]; this one has []": {Kind: Classes},
		`this one has ["out" float32 [1 3] "out" float32 [1 3]]`:                          {Kind: Classes, Outputs: of(class[0], class[0])},
		`this one has ["out" float32 [2 3]]`:                                              {Kind: Classes, Outputs: of(info("out", tensor.Float32, 2, 3))},
		`this one has ["out" uint8 [1 3]]`:                                                {Kind: Classes, Outputs: of(info("out", tensor.Uint8, 1, 3))},
		`[heat map: float32 [1 1 ? ?] or [1 ? ?] or [? ?]]; this one has ["map" float32 [1 2 8 8]]`: {
			Kind: HeatMap, Outputs: of(info("map", tensor.Float32, 1, 2, 8, 8)),
		},
		`[boxes: float32 [? 4] scores: float32 [?] labels: int64 [?]]; this one has ["boxes" float32 [? 5] "scores"`: {
			Kind: Detections, Outputs: of(info("boxes", tensor.Float32, -1, 5), detectionInfos[2], detectionInfos[0]),
		},
		`this one has ["labels" int64 [?] "boxes" float32 [? 4] "scores" float32 [?] "masks" float32 [? 1 ? ?]]`: {
			Kind: Detections, Outputs: append(of(detectionInfos...), info("masks", tensor.Float32, -1, 1, -1, -1)),
		},
	} {
		if p, err := New(c); err == nil || !strings.Contains(err.Error(), want) || p != nil {
			t.Errorf("%v, must contain %s", err, want)
		}
	}
}

// TestOutputsThatAreRefused checks that outputs that are not as the model said are errors with the name of the output, and
// that nothing is added to the results then.
func TestOutputsThatAreRefused(t *testing.T) {
	good := detected(make([]float32, 8), make([]float32, 2), make([]int64, 2))
	with := func(at int, o tensor.Tensor) []tensor.Tensor {
		all := append([]tensor.Tensor(nil), good...)
		all[at] = o
		return all
	}
	short, huge := floats("", make([]float32, 7), 2, 4), floats("", nil, math.MaxInt64, math.MaxInt64)
	classes := Config{Kind: Classes, Labels: []string{"a", "b"}, Outputs: []tensor.Info{info("out", tensor.Float32, -1)}}
	heat := Config{Kind: HeatMap, Outputs: []tensor.Info{info("map", tensor.Float32, -1, -1)}}
	detections := Config{Kind: Detections, Outputs: detectionInfos}
	double := tensor.Tensor{Info: info("", tensor.Float64, 2), Data: make([]byte, 16)}
	nowhere := tensor.Placement{X: math.NaN(), ScaleX: 1, ScaleY: 1, Width: 1, Height: 1}
	for _, c := range []struct {
		config  Config
		outputs []tensor.Tensor
		at      tensor.Placement
		want    string
	}{
		{detections, good[:2], square, "the model returned 2 outputs, and has 3"},
		{
			detections, with(1, floats("", make([]float32, 10), 2, 5)), square,
			`output "boxes": the model returned "" float32 [2 5] with 40 bytes, and kind detections needs boxes: float32 [? 4]`,
		},
		{detections, with(1, short), square, `output "boxes": the model returned "" float32 [2 4] with 28 bytes`},
		{detections, with(1, floats("", make([]float32, 9), 2, 4)), square, `output "boxes": the model returned "" float32 [2 4] with 36 bytes`},
		{detections, with(1, floats("", nil, -2, 4)), square, `output "boxes": the model returned "" float32 [-2 4] with 0 bytes`},
		{detections, with(1, huge), square, `output "boxes": the model returned "" float32 [9223372036854775807 9223372036854775807] with 0 bytes`},
		{detections, with(2, double), square, `output "scores": the model returned "" float64 [2] with 16 bytes`},
		{detections, with(0, tensor.Tensor{Info: info("", tensor.Int64)}), square, `output "labels": the model returned "" int64 [] with 0 bytes`},
		{
			detections, with(1, floats("", make([]float32, 12), 3, 4)), square,
			`outputs "boxes", "scores" and "labels": the model returned 3 boxes, 2 scores and 2 labels`,
		},
		{classes, []tensor.Tensor{floats("", make([]float32, 3), 3)}, square, `output "out" has 3 classes, and there are 2 labels`},
		{heat, []tensor.Tensor{floats("", nil, -1, 0)}, square, `output "map": the model returned "" float32 [? 0] with 0 bytes`},
		{detections, good, tensor.Placement{}, "placement {X:0 Y:0 ScaleX:0 ScaleY:0 Width:0 Height:0}: sizes must be above 0"},
		{detections, good, nowhere, "placement {X:NaN Y:0 ScaleX:1 ScaleY:1 Width:1 Height:1}"},
	} {
		var got pipeline.Result
		err := mustNew(t, c.config).Process(c.outputs, c.at, &got)
		if err == nil || !strings.Contains(err.Error(), c.want) || !reflect.DeepEqual(got, pipeline.Result{}) {
			t.Errorf("%v, %+v: must contain %s", err, got, c.want)
		}
	}
	var got pipeline.Result
	for _, shape := range [][]int{{0, 1 << 60}, {1 << 60, 0}} { // ends at once
		process(t, mustNew(t, heat), &got, square, floats("", nil, shape...))
	}
	process(t, mustNew(t, detections), &got, square, good...)
	if !reflect.DeepEqual(got, pipeline.Result{}) {
		t.Errorf("%+v", got)
	}
}
