// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/onnx"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// TestONNXsOwnModels runs the models of the tests of ONNX, which are for all of its operators, on the inputs that belong to
// them, and compares inputs and outputs with the descriptions that package onnx reads, and the numbers with ONNX's.
func TestONNXsOwnModels(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long-peers)")
	}
	r := newest(t)
	same, run, right := 0, 0, 0
	for _, folder := range infertest.Conformance(t) {
		path := filepath.Join(folder, "model.onnx")
		m, err := onnx.Open(path, onnx.Limits{})
		if err != nil {
			continue // the test of this name in package onnx says why
		}
		s, err := r.NewSession(t.Context(), SessionConfig{Model: path})
		if err != nil {
			continue // the library does not have all operators for all types
		}
		if !reflect.DeepEqual(m.Inputs, s.Inputs()) || !described(m.Outputs, s.Outputs()) {
			t.Errorf("%s: %v %v, and package onnx has %v %v", folder, s.Inputs(), s.Outputs(), m.Inputs, m.Outputs)
		}
		same++
		if bad, ran := computes(t, s, filepath.Join(folder, "test_data_set_0")); ran {
			run++
			if bad == "" {
				right++
			} else {
				t.Log(filepath.Base(folder), bad)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if t.Logf("%d are described alike, %d run, %d of them as ONNX says", same, run, right); same < 1200 || run < 900 || right < run*98/100 {
		t.Fail()
	}
}

// described reports whether the outputs that the library finds are those of the file, in which it may complete the shapes.
func described(file, library []tensor.Info) bool {
	if len(file) != len(library) {
		return false
	}
	for i, f := range file {
		l := library[i]
		if f.Name != l.Name || f.Type != l.Type || f.Shape != nil && len(f.Shape) != len(l.Shape) {
			return false
		}
		for j, d := range f.Shape {
			if d != l.Shape[j] && d != tensor.Dynamic {
				return false
			}
		}
	}
	return true
}

// computes runs a model on the inputs in a folder, and returns how the outputs differ from those there. The bool is false
// if there are none whose numbers are stored as bytes.
func computes(t *testing.T, s *Session, folder string) (difference string, ran bool) {
	for i, info := range s.Inputs() {
		in, ok := stored(t, filepath.Join(folder, fmt.Sprintf("input_%d.pb", i)))
		if !ok || len(in.Data) == 0 {
			return "", false
		}
		bound, err := s.BindInput(tensor.Info{Name: info.Name, Type: in.Type, Shape: in.Shape})
		if err != nil {
			return err.Error(), true
		}
		copy(bound.Data, in.Data)
	}
	out, err := s.Run(t.Context())
	if err != nil {
		return err.Error(), true
	}
	for i, got := range out {
		want, ok := stored(t, filepath.Join(folder, fmt.Sprintf("output_%d.pb", i)))
		if !ok {
			return "", false
		}
		if !reflect.DeepEqual(got.Shape, want.Shape) || got.Type != want.Type || !near(got, want) {
			return fmt.Sprintf("output %s is not %s, or has other numbers", got.Info, want.Info), true
		}
	}
	return "", true
}

// near reports whether numbers are the same, or nearly so if they are fractions of 32 bits. It does not look at others.
func near(a, b tensor.Tensor) bool {
	switch a.Type {
	case tensor.Float16, tensor.Float64, tensor.BFloat16:
		return true
	case tensor.Float32:
		x, y := a.Float32s(), b.Float32s()
		for i := range x {
			p, q := float64(x[i]), float64(y[i])
			if p != q && !(math.IsNaN(p) && math.IsNaN(q)) && !(math.Abs(p-q) <= 1e-3+1e-3*math.Abs(q)) {
				return false
			}
		}
		return len(x) == len(y)
	}
	return bytes.Equal(a.Data, b.Data)
}

// stored reads a TensorProto whose numbers are stored as bytes.
func stored(t *testing.T, path string) (in tensor.Tensor, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return in, false
	}
	in.Shape = []int64{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, kind, b[max(n, 0):])
		if n < 0 || size < 0 {
			t.Fatalf("%s is no TensorProto", path)
		}
		value, _ := protowire.ConsumeVarint(b[n:])
		switch {
		case number == 1 && kind == protowire.VarintType:
			in.Shape = append(in.Shape, int64(value))
		case number == 2:
			in.Type = tensor.Type(value)
		case number == 9:
			in.Data, _ = protowire.ConsumeBytes(b[n:])
		}
		b = b[n+size:]
	}
	want, err := in.Bytes(1 << 30)
	return in, err == nil && int64(len(in.Data)) == want
}
