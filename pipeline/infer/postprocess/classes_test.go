// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

func TestClassesHaveNamesAndScores(t *testing.T) {
	for name, c := range map[string]struct {
		scores    []float32
		labels    []string
		threshold float64
		operator  string
		want      pipeline.Result
	}{
		"probabilities": {
			[]float32{0.1, 0.6, 0.3},
			[]string{"cat", "dog", ""},
			0.3, "Softmax",
			pipeline.Result{Tags: tags("dog"), Numbers: numbers{"score": 0.6, "dog": 0.6, "class 2": 0.3}},
		},
		"logits": {
			[]float32{0, float32(math.Log(2)), 0},
			nil, 0.2, "Gemm",
			pipeline.Result{Tags: tags("class 1"), Numbers: numbers{"score": 0.5, "class 1": 0.5, "class 0": 0.25, "class 2": 0.25}},
		},
		"large logits": {
			[]float32{-1e38, 3e38, 1000}, nil, 0.5, "", pipeline.Result{Tags: tags("class 1"), Numbers: numbers{"score": 1, "class 1": 1}},
		},
		"infinite logits": {
			[]float32{inf, -inf, inf, nan},
			nil, 0.1, "",
			pipeline.Result{Tags: tags("class 0"), Numbers: numbers{"score": 0.5, "class 0": 0.5, "class 2": 0.5}},
		},
		"the best five": {
			[]float32{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.15, 0.25, 0.35, 0.45}, nil, 0, "Sigmoid", pipeline.Result{
				Tags: tags("class 7"), Numbers: numbers{"score": 0.8, "class 7": 0.8, "class 6": 0.7, "class 5": 0.6, "class 4": 0.5, "class 11": 0.45},
			},
		},
		"below the threshold": {[]float32{0.2, 0.4}, nil, 0.5, "Softmax", pipeline.Result{Tags: tags("class 1"), Numbers: numbers{"score": 0.4}}},
		"beyond 0 to 1":       {[]float32{-2, inf}, nil, 0, "Softmax", pipeline.Result{Tags: tags("class 1"), Numbers: numbers{"score": 1, "class 1": 1, "class 0": 0}}},
		"NaN":                 {[]float32{nan, 0.5, nan}, nil, 0, "Softmax", pipeline.Result{Tags: tags("class 1"), Numbers: numbers{"score": 0.5, "class 1": 0.5}}},
		"NaN alone":           {[]float32{nan, nan}, nil, 0, "", pipeline.Result{}},
		"none":                {nil, nil, 0, "", pipeline.Result{}},
		"names twice": {
			[]float32{0.1, 0.3, 0.2, 0.4},
			[]string{"crane", "crane", "score", "bird"},
			0, "Softmax",
			pipeline.Result{Tags: tags("bird"), Numbers: numbers{"score": 0.4, "crane": 0.3, "bird": 0.4}},
		},
	} {
		for _, shape := range [][]int{{len(c.scores)}, {1, len(c.scores)}} {
			t.Run(fmt.Sprint(name, shape), func(t *testing.T) {
				p := mustNew(t, Config{
					Kind: Classes, Labels: c.labels, Threshold: c.threshold, Operators: map[string]string{"out": c.operator},
					Outputs: []tensor.Info{info("out", tensor.Float32, append([]int{1}[:len(shape)-1:1], -1)...)},
				})
				for range 2 {
					var got pipeline.Result
					process(t, p, &got, tensor.Placement{}, floats("out", c.scores, shape...))
					for name, n := range got.Numbers {
						got.Numbers[name] = math.Round(n*1e6) / 1e6
					}
					if !reflect.DeepEqual(got, c.want) {
						t.Errorf("%+v\nmust be %+v", got, c.want)
					}
				}
			})
		}
	}
}

type numbers = map[string]float64

func tags(class string) map[string]string { return map[string]string{"class": class} }
