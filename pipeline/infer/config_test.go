// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"maps"
	"testing"

	"github.com/tegracast/tegracast/pipeline/infer/onnx"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// TestSizesOfNamedDimensions checks that each name has one size.
func TestSizesOfNamedDimensions(t *testing.T) {
	shape := []int64{1, 3, 480, 640}
	for _, x := range []struct {
		names []string
		want  map[string]int64
	}{
		{[]string{"", "", "", ""}, map[string]int64{}},
		{[]string{"batch", "", "height", "width"}, map[string]int64{"batch": 1, "height": 480, "width": 640}},
		{[]string{"batch", "", "side", "side"}, map[string]int64{"batch": 1}},
		{[]string{"n", "n", "n", "n"}, map[string]int64{}},
	} {
		p := &Plan{Model: &onnx.Model{Dimensions: [][]string{x.names}}, Input: tensor.Info{Shape: shape}}
		if got := p.dimensions(); !maps.Equal(got, x.want) {
			t.Errorf("%q: %v, not %v", x.names, got, x.want)
		}
	}
	p := &Plan{Model: &onnx.Model{Dimensions: [][]string{{"a", "a", "b"}}}, Input: tensor.Info{Shape: []int64{4, 4, 5}}}
	if got := p.dimensions(); !maps.Equal(got, map[string]int64{"a": 4, "b": 5}) {
		t.Errorf("a name twice with the same size: %v", got)
	}
}
