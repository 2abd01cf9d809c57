// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/onnx"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// newest opens the newest release for this machine.
func newest(t *testing.T) *Runtime {
	t.Helper()
	return opened(t, infertest.Library(t, infertest.Newest, runtime.GOARCH))
}

// session loads a model that is a file.
func session(t *testing.T, r *Runtime, model string) *Session {
	t.Helper()
	s, err := r.NewSession(t.Context(), SessionConfig{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// built loads a model of these parts.
func built(t *testing.T, r *Runtime, parts ...[]byte) *Session {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, infertest.Build(parts...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := onnx.Open(path, onnx.Limits{}); err != nil {
		t.Fatal(err)
	}
	return session(t, r, path)
}

// bind binds the first input with this shape.
func bind(t *testing.T, s *Session, shape ...int64) tensor.Tensor {
	t.Helper()
	in, err := s.BindInput(tensor.Info{Name: s.Inputs()[0].Name, Type: s.Inputs()[0].Type, Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// fill writes numbers between -1 and 1 that look like noise, always the same.
func fill(numbers []float32) {
	for i := range numbers {
		numbers[i] = float32(math.Sin(float64(i) * 1.7))
	}
}

// draw draws a line of dark strokes on white, which the detector takes for text, in planes of 160 × 96.
func draw(numbers []float32) {
	for i := range numbers {
		x, y := i%160, i/160%96
		numbers[i] = 2
		if y >= 40 && y < 56 && x >= 20 && x < 140 && (x%10 < 3 || (y == 47 || y == 48) && x%20 < 12) {
			numbers[i] = -2
		}
	}
}

// shapes are the shapes with which models of others are run.
var shapes = map[string][]int64{
	infertest.Classifier: {1, 3, 48, 192}, infertest.Detector: {1, 3, 96, 160}, infertest.Recognizer: {1, 3, 48, 96},
}

// TestTheLibraryFindsTheSameModel compares inputs and outputs with those that package onnx reads from the file.
func TestTheLibraryFindsTheSameModel(t *testing.T) {
	r := newest(t)
	if r.Version() != infertest.Newest {
		t.Errorf("release %s", r.Version())
	}
	if p, err := r.Providers(); err != nil || !slices.Contains(p, "CPUExecutionProvider") {
		t.Errorf("%v %v", p, err)
	}
	for name := range shapes {
		path := infertest.Model(t, name)
		m, err := onnx.Open(path, onnx.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if s := session(t, r, path); !reflect.DeepEqual(s.Inputs(), m.Inputs) || !reflect.DeepEqual(s.Outputs(), m.Outputs) {
			t.Errorf("%s: %v %v, and package onnx has %v %v", name, s.Inputs(), s.Outputs(), m.Inputs, m.Outputs)
		}
	}
	var weights []byte
	for i := range 6 {
		weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(float32(i)))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "w.bin"), append(make([]byte, 4096), weights...), 0o644); err != nil {
		t.Fatal(err)
	}
	model := infertest.Build(
		infertest.Value(infertest.FieldInput, "in", tensor.Float32, "n", 6), infertest.Value(infertest.FieldInput, "unused", tensor.Uint8),
		infertest.Value(infertest.FieldOutput, "out", tensor.Float32, -1, 6), infertest.Node(infertest.FieldNode, "Mul", []string{"in", "w"}, []string{"out"}),
		infertest.Sub(infertest.FieldInitializer, infertest.Integer(1, 6), infertest.Integer(2, 1), infertest.Sub(8, "w"), infertest.Integer(14, 1),
			infertest.Sub(13, infertest.Sub(1, "location"), infertest.Sub(2, "w.bin")), infertest.Sub(13, infertest.Sub(1, "offset"), infertest.Sub(2, "4096"))))
	path := filepath.Join(dir, "m.onnx")
	if err := os.WriteFile(path, model, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Open(path, onnx.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, r, path)
	if !reflect.DeepEqual(s.Inputs(), m.Inputs) || !reflect.DeepEqual(s.Outputs(), m.Outputs) {
		t.Errorf("%v %v, and package onnx has %v %v", s.Inputs(), s.Outputs(), m.Inputs, m.Outputs)
	}
	in := bind(t, s, 2, 6)
	if scalar, err := s.BindInput(tensor.Info{Name: "unused", Type: tensor.Uint8, Shape: []int64{}}); err != nil || len(scalar.Data) != 1 {
		t.Fatal(err)
	}
	for i := range in.Float32s() {
		in.Float32s()[i] = 2
	}
	out, err := s.Run(t.Context())
	if err != nil || out[0].String() != `"out" float32 [2 6]` || !reflect.DeepEqual(out[0].Float32s(), []float32{0, 2, 4, 6, 8, 10, 0, 2, 4, 6, 8, 10}) {
		t.Errorf("%v %v", out, err)
	}
}

// TestInputsThatDoNotFit checks the errors.
func TestInputsThatDoNotFit(t *testing.T) {
	s := session(t, newest(t), infertest.Model(t, infertest.Recognizer))
	if _, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `input "x" float32 [? 3 48 ?] is not bound`) {
		t.Error(err)
	}
	for _, c := range []struct {
		info tensor.Info
		want string
	}{
		{tensor.Info{Name: "y", Type: tensor.Float32, Shape: []int64{1, 3, 48, 96}}, `no input "y"`},
		{tensor.Info{Name: "x", Type: tensor.Uint8, Shape: []int64{1, 3, 48, 96}}, "does not fit the model's"},
		{tensor.Info{Name: "x", Type: tensor.Float32, Shape: []int64{1, 4, 48, 96}}, "does not fit the model's"},
		{tensor.Info{Name: "x", Type: tensor.Float32, Shape: []int64{3, 48, 96}}, "does not fit the model's"},
		{tensor.Info{Name: "x", Type: tensor.Float32, Shape: []int64{1, 3, 48, -1}}, "the shape is not fixed"},
		{tensor.Info{Name: "x", Type: tensor.Float32, Shape: []int64{1, 3, 48, 1 << 40}}, "more than 2147483648 bytes"},
		{tensor.Info{Name: "x", Type: tensor.Float32, Shape: []int64{1, 3, 48, 0}}, "is empty"},
	} {
		if _, err := s.BindInput(c.info); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	bind(t, s, 1, 3, 48, 96)
	info := tensor.Info{Name: "x", Type: tensor.Float32, Shape: []int64{1, 3, 48, 96}}
	if _, err := s.BindInput(info); err == nil || !strings.Contains(err.Error(), "bound already") {
		t.Error(err)
	}
	other := session(t, s.r, infertest.Model(t, infertest.Recognizer))
	if err := other.BindDeviceInput(info, 4096); err == nil || !strings.Contains(err.Error(), "memory of a GPU is for cuda and tensorrt") {
		t.Error(err)
	}
}

// TestOutputsChangeTheirShape runs a model whose output depends on the numbers.
func TestOutputsChangeTheirShape(t *testing.T) {
	s := built(t, newest(t), infertest.Value(infertest.FieldInput, "in", tensor.Float32, 8), infertest.Value(infertest.FieldOutput, "out", tensor.Int64, 1, "n"),
		infertest.Node(infertest.FieldNode, "NonZero", []string{"in"}, []string{"out"}))
	in := bind(t, s, 8)
	for n := range 9 {
		want := []int64(nil)
		for i := range n {
			in.Float32s()[i] = 1
			want = append(want, int64(i))
		}
		out, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := out[0].Int64s(); !slices.Equal(got, want) || out[0].Shape[1] != int64(n) {
			t.Errorf("%v %v, not %v", out[0].Info, got, want)
		}
	}
}

// TestAModelThatDoesNotEndIsInterrupted runs a loop whose condition stays true.
func TestAModelThatDoesNotEndIsInterrupted(t *testing.T) {
	truth := infertest.Sub(infertest.FieldInitializer, infertest.Integer(2, int64(tensor.Bool)), infertest.Sub(9, "\x01"), infertest.Sub(8, "true"))
	value := infertest.Value
	node := infertest.Node
	body := infertest.Sub(6, infertest.Sub(2, "body"), node(1, "Identity", []string{"c"}, []string{"c2"}), node(1, "Identity", []string{"v"}, []string{"v2"}),
		value(11, "i", tensor.Int64), value(11, "c", tensor.Bool), value(11, "v", tensor.Float32, 4), value(12, "c2", tensor.Bool), value(12, "v2", tensor.Float32, 4))
	s := built(t, newest(t), truth, value(11, "in", tensor.Float32, 4), value(12, "out", tensor.Float32, 4),
		node(1, "Loop", []string{"", "true", "in"}, []string{"out"}, infertest.Sub(5, infertest.Sub(1, "body"), infertest.Integer(20, 5), body)))
	bind(t, s, 4)
	for range 2 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("too slow"))
		_, err := s.Run(ctx)
		cancel()
		if err == nil || err.Error() != "the model was interrupted: too slow" {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestModelsThatTheLibraryRefuses loads what is no model, and asks for providers that this library does not have.
func TestModelsThatTheLibraryRefuses(t *testing.T) {
	r, dir := newest(t), t.TempDir()
	content, err := os.ReadFile(infertest.Model(t, infertest.Classifier))
	if err != nil {
		t.Fatal(err)
	}
	for name, model := range map[string][]byte{
		"empty": {}, "text": []byte("hello"), "cut": content[:len(content)/2], "zeros": make([]byte, 1000), "ort.ort": []byte("\x20\x00\x00\x00ORTM" + strings.Repeat("\xff", 100)),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, model, 0o644); err != nil {
			t.Fatal(err)
		}
		var status *StatusError
		if s, err := r.NewSession(t.Context(), SessionConfig{Model: path}); !errors.As(err, &status) || s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, provider := range []string{CUDA, TensorRT, "npu"} {
		s, err := r.NewSession(t.Context(), SessionConfig{Model: infertest.Model(t, infertest.Classifier), Provider: provider, Cache: dir, Digest: "d"})
		if !errors.Is(err, ErrProvider) || !strings.Contains(err.Error(), provider) || strings.Contains(err.Error(), "\n") || s != nil {
			t.Errorf("%s: %v", provider, err)
		}
	}
}

// TestDimensionsAreFixed checks that sizes of named dimensions become those of the input, of whatever release the library is.
func TestDimensionsAreFixed(t *testing.T) {
	for _, release := range []string{infertest.Oldest, infertest.Newest} {
		r := opened(t, infertest.Library(t, release, runtime.GOARCH))
		path := filepath.Join(t.TempDir(), "model.onnx")
		model := infertest.Build(infertest.Value(infertest.FieldInput, "in", tensor.Float32, "batch", 3, "height", "width"),
			infertest.Value(infertest.FieldOutput, "out", tensor.Float32, "batch", 3, "height", "width"),
			infertest.Node(infertest.FieldNode, "Relu", []string{"in"}, []string{"out"}))
		if err := os.WriteFile(path, model, 0o644); err != nil {
			t.Fatal(err)
		}
		var ran int
		s, err := r.NewSession(t.Context(), SessionConfig{
			Model: path, Dimensions: map[string]int64{"batch": 1, "height": 5, "depth": 9},
			Bind: func(s *Session) error {
				ran++
				_, err := s.BindInput(tensor.Info{Name: "in", Type: tensor.Float32, Shape: []int64{1, 3, 5, 7}})
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if in := s.Inputs()[0].String(); in != `"in" float32 [1 3 5 ?]` || ran != 1 {
			t.Errorf("%s: the input is %s", release, in)
		}
		if out, err := s.Run(t.Context()); err != nil || out[0].String() != `"out" float32 [1 3 5 7]` {
			t.Errorf("%s: %v %v", release, out, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNotANumber runs a model on numbers that are none.
func TestNotANumber(t *testing.T) {
	s := session(t, newest(t), infertest.Model(t, infertest.Classifier))
	in := bind(t, s, shapes[infertest.Classifier]...)
	for i, bad := range []float64{math.NaN(), math.Inf(1), math.MaxFloat32, 0} {
		for j := range in.Float32s() {
			in.Float32s()[j] = float32(bad)
		}
		out, err := s.Run(t.Context())
		if err != nil || len(out[0].Float32s()) != 2 {
			t.Fatalf("%v %v", out, err)
		}
		if sum := float64(out[0].Float32s()[0] + out[0].Float32s()[1]); i == 3 && math.Abs(sum-1) > 1e-5 {
			t.Errorf("after the others, zeros have the probabilities %v", out[0].Float32s())
		}
	}
}

// TestCloseFreesTheModel opens a model of 5 MB often.
func TestCloseFreesTheModel(t *testing.T) {
	r := newest(t)
	use := func(times int) int {
		for range times {
			s, err := r.NewSession(t.Context(), SessionConfig{Model: infertest.Model(t, infertest.Detector)})
			if err != nil {
				t.Fatal(err)
			}
			in := bind(t, s, 1, 3, 64, 64)
			fill(in.Float32s())
			if _, err := s.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return resident(t)
	}
	before := use(4)
	if after := use(12); after > before+25<<20 {
		t.Errorf("resident memory grew from %d to %d MiB", before>>20, after>>20)
	}
}

// resident returns the size of the process's resident memory in bytes.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// compute runs a model of others with a library, and returns its first output.
func compute(t *testing.T, r *Runtime, model string) tensor.Tensor {
	t.Helper()
	s := session(t, r, infertest.Model(t, model))
	in := bind(t, s, shapes[model]...)
	if fill(in.Float32s()); model == infertest.Detector {
		draw(in.Float32s())
	}
	out, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tensor.Tensor{Info: out[0].Info, Data: slices.Clone(out[0].Data)}
}

// differ returns how two outputs, which are not all near zero, differ; "": by less than 1e-4.
func differ(a, b []float32) string {
	most, largest := 0.0, 0.0
	for i := range min(len(a), len(b)) {
		most, largest = max(most, math.Abs(float64(a[i]-b[i]))), max(largest, float64(b[i]))
	}
	if len(a) == len(b) && largest > 0.5 && most < 1e-4 {
		return ""
	}
	return fmt.Sprintf("%d and %d numbers, of up to %g, differ by %g", len(a), len(b), largest, most)
}
