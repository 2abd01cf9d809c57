// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// parsed parses a model without a folder.
func parsed(t testing.TB, model []byte) (*Model, error) {
	t.Helper()
	return parsedIn(t, t.TempDir(), model)
}

func parsedIn(t testing.TB, dir string, model []byte) (*Model, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	p := newParser(Limits{1 << 24, 1 << 12, 8}, root, int64(len(model)))
	err = p.parse(bytes.NewReader(model), int64(len(model)))
	return p.model, err
}

// TestModelsOfOthers reads three models.
func TestModelsOfOthers(t *testing.T) {
	float := func(name string, shape ...int64) []tensor.Info {
		return []tensor.Info{{Name: name, Type: tensor.Float32, Shape: shape}}
	}
	for _, m := range []struct {
		file            string
		inputs, outputs []tensor.Info
		operator        string
	}{
		{infertest.Detector, float("x", -1, 3, -1, -1), float("sigmoid_0.tmp_0", -1, 1, -1, -1), "Sigmoid"},
		{infertest.Classifier, float("x", -1, 3, -1, -1), float("softmax_0.tmp_0", -1, 2), "Softmax"},
		{infertest.Recognizer, float("x", -1, 3, 48, -1), float("softmax_11.tmp_0", -1, -1, 6625), "Softmax"},
	} {
		path := infertest.Model(t, m.file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := Open(path, Limits{})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
			t.Errorf("%s: %d bytes were allocated to read %d", m.file, used, len(content))
		}
		if !reflect.DeepEqual(got.Inputs, m.inputs) || !reflect.DeepEqual(got.Outputs, m.outputs) {
			t.Errorf("%s: inputs %v, outputs %v, not %v, %v", m.file, got.Inputs, got.Outputs, m.inputs, m.outputs)
		}
		if got.OutputOperators[m.outputs[0].Name] != m.operator {
			t.Errorf("%s: outputs are made by %v", m.file, got.OutputOperators)
		}
		if got.Digest != fmt.Sprintf("%x", sha256.Sum256(content)) || got.Size != int64(len(content)) || got.Opsets[""] < 7 {
			t.Errorf("%s: %+v", m.file, got)
		}
	}
}

// TestONNXsOwnModels reads the models of the tests of ONNX, which are for all of its operators. Those that are refused have
// inputs or outputs that are no tensors of usual numbers, no inputs, or operators for training.
func TestONNXsOwnModels(t *testing.T) {
	reasons := []string{"has texts", "has elements of type", "only tensors (1) are supported", "it has 0 inputs", `domain "ai.onnx.preview.training"`}
	read, folders := 0, infertest.Conformance(t)
	for _, f := range folders {
		_, err := Open(filepath.Join(f, "model.onnx"), Limits{})
		if err == nil {
			read++
		} else if !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(err.Error(), r) }) {
			t.Error(err)
		}
	}
	if read < len(folders)*8/10 {
		t.Errorf("%d of %d are read", read, len(folders))
	}
}

// TestEachTruncationIsRefused cuts a model of others at many places.
func TestEachTruncationIsRefused(t *testing.T) {
	content, err := os.ReadFile(infertest.Model(t, infertest.Classifier))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for n := 0; n < len(content); n += 1 + n/50 {
		for what, size := range map[string]int64{"file": int64(n), "reading": int64(len(content))} { // it shrinks while it is read
			p := newParser(Limits{1 << 24, 1 << 12, 8}, root, size)
			if err := p.parse(bytes.NewReader(content[:n]), size); !errors.Is(err, ErrModel) {
				t.Fatalf("%s of %d bytes: %v", what, n, err)
			}
		}
	}
}

// TestMutationsDoNoHarm changes bytes of a model of others: it is read, or refused with an error.
func TestMutationsDoNoHarm(t *testing.T) {
	content, err := os.ReadFile(infertest.Model(t, infertest.Classifier))
	if err != nil {
		t.Fatal(err)
	}
	dir, refused := t.TempDir(), 0
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		changed := bytes.Clone(content)
		for range 1 + r.IntN(8) {
			changed[r.IntN(len(changed))] ^= byte(1 << r.IntN(8))
		}
		changed[r.IntN(2000)] = byte(r.Uint32())
		if _, err := parsedIn(t, dir, changed); err != nil && !errors.Is(err, ErrModel) {
			t.Fatal(err)
		} else if err != nil {
			refused++
		}
	}
	if refused < 50 || refused == 200 {
		t.Errorf("%d of 200 were refused", refused)
	}
}

// Short names of the functions that build models, and of fields of a GraphProto.
var (
	build, value, node = infertest.Build, infertest.Value, infertest.Node
	integer, sub, text = infertest.Integer, infertest.Sub[[]byte], infertest.Sub[string]
)

const (
	fieldNode, fieldInput         = infertest.FieldNode, infertest.FieldInput
	fieldInitializer, fieldOutput = infertest.FieldInitializer, infertest.FieldOutput
)

var (
	in   = value(fieldInput, "in", tensor.Float32, "batch", 4)
	out  = value(fieldOutput, "out", tensor.Float32, "batch", 4)
	relu = node(fieldNode, "Relu", []string{"in"}, []string{"out"})
)

// weights returns an initialiser w: float32 [2 3] with more fields.
func weights(more ...[]byte) []byte {
	return sub(fieldInitializer, append([][]byte{integer(1, 2), integer(1, 3), integer(2, 1), text(8, "w")}, more...)...)
}

// outside returns weights whose data is in a file.
func outside(pairs ...string) []byte {
	more := [][]byte{integer(14, 1)}
	for i := 0; i < len(pairs); i += 2 {
		more = append(more, sub(13, text(1, pairs[i]), text(2, pairs[i+1])))
	}
	return weights(more...)
}

var data24 = sub(9, make([]byte, 24))

// TestGoodModels reads models whose parts are in unusual places.
func TestGoodModels(t *testing.T) {
	scalar := value(fieldInput, "scalar", tensor.Int64)
	function := sub(25, text(1, "Twice"), text(10, "own"), node(7, "Add", []string{"a", "a"}, []string{"b"}))
	for name, model := range map[string][]byte{
		"plain":                         build(in, out, relu),
		"weights":                       build(in, out, relu, weights(data24)),
		"weights as floats":             build(in, out, relu, weights(sub(4, make([]byte, 24)))),
		"dimensions, packed":            build(in, out, relu, sub(fieldInitializer, sub(1, []byte{2, 3}), integer(2, 1), data24)),
		"4 bits":                        build(in, out, relu, sub(fieldInitializer, integer(1, 3), integer(2, 22), sub(9, make([]byte, 2)))),
		"texts":                         build(in, out, relu, sub(fieldInitializer, integer(1, 2), integer(2, 8), text(6, "a"), text(6, "b"))),
		"an input that is a weight":     build(in, value(fieldInput, "w", tensor.Float32, 2, 3), out, relu, weights(data24)),
		"an empty tensor":               build(in, out, relu, sub(fieldInitializer, integer(1, 0), integer(1, 1<<40), integer(2, 1))),
		"a scalar":                      build(in, scalar, out, relu),
		"a function":                    append(build(in, out, node(fieldNode, "Twice", []string{"in"}, []string{"out"}, text(7, "own"))), function...),
		"ONNX by its name":              build(in, out, node(fieldNode, "Relu", []string{"in"}, []string{"out"}, text(7, "ai.onnx"))),
		"graph in a node":               build(in, out, node(fieldNode, "If", []string{"in"}, []string{"out"}, sub(5, text(1, "then_branch"), sub(6, relu)))),
		"a field of a later onnx.proto": append(build(in, out, relu), text(99, "new")...),
	} {
		m, err := parsed(t, model)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := `"in" float32 [? 4]`; m.Inputs[0].String() != want || len(m.Inputs) > 1 && name != "a scalar" {
			t.Errorf("%s: inputs %v, not %s", name, m.Inputs, want)
		}
		if len(m.Dimensions) != len(m.Inputs) || !slices.Equal(m.Dimensions[0], []string{"batch", ""}) {
			t.Errorf("%s: dimensions %q", name, m.Dimensions)
		}
		if name == "a scalar" && (len(m.Inputs) != 2 || m.Inputs[1].Shape == nil || len(m.Inputs[1].Shape) != 0) {
			t.Errorf("%s: inputs %v", name, m.Inputs)
		}
	}
}

// TestBadModelsAreRefused looks for a part of the error.
func TestBadModelsAreRefused(t *testing.T) {
	nested := relu
	for range 9 {
		nested = node(fieldNode, "If", nil, []string{"out"}, sub(5, sub(6, nested)))
	}
	var many [][]byte
	for range 2500 {
		many = append(many, relu)
	}
	sparse := sub(15, sub(1, integer(1, 1), integer(2, 1), sub(9, make([]byte, 4))),
		sub(2, integer(1, 1), integer(2, 7), sub(9, make([]byte, 8))), integer(3, 1<<22))
	custom := node(fieldNode, "Magic", []string{"in"}, []string{"out"}, text(7, "acme"))
	for want, model := range map[string][]byte{
		"is empty":                                        {},
		"git lfs pull":                                    []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
		"torch.onnx.export":                               []byte("PK\x03\x04 and more"),
		"ONNX Runtime's own format":                       []byte("\x20\x00\x00\x00ORTM and more"),
		"is text":                                         []byte("ir_version: 8\ngraph {}\n"),
		"byte 0, in a ModelProto, begins no":              {0x07, 0x01, 0x00},
		"begins no number":                                bytes.Repeat([]byte{0xff}, 40),
		"has no graph":                                    integer(1, 8),
		"which version of ONNX's operators":               sub(7, in, out, relu),
		"1 inputs and 0 outputs":                          build(in, relu),
		"0 inputs and 1 outputs":                          build(out, relu),
		"has its field 7 twice":                           append(build(in, out, relu), sub(7, relu)...),
		"to a depth of more than 8":                       build(in, out, nested),
		"are more than 4096":                              build(append(many, in, out, many[0])...),
		`custom operators of domain "acme" ("Mag`:         build(in, out, custom),
		`"EPContext" is refused`:                          build(in, out, node(fieldNode, "EPContext", nil, []string{"out"}, text(7, "com.microsoft"))),
		`input "in" has texts`:                            build(value(fieldInput, "in", 8, 1), out, relu),
		`output "out" has elements of type 17`:            build(in, value(fieldOutput, "out", 17, 1), relu),
		"type 4 of a TypeProto":                           build(sub(fieldInput, text(1, "in"), sub(2, text(4, ""))), out, relu),
		`input "in" is no tensor`:                         build(sub(fieldInput, text(1, "in")), out, relu),
		`shape of its input "in" is not known`:            build(sub(fieldInput, text(1, "in"), sub(2, sub(1, integer(1, 1)))), out, relu),
		"more than 64 dimensions":                         build(value(fieldInput, "in", 1, dims(65)...), out, relu),
		"[2 3] needs 6 elements of data, and there are 0": build(in, out, relu, weights()),
		"[2 3] needs 24 bytes of data, and there are 23":  build(in, out, relu, weights(sub(9, make([]byte, 23)))),
		"[2 3] needs 6 elements of data, and there are 5": build(in, out, relu, weights(sub(4, make([]byte, 20)))),
		"[2 3] needs 24 bytes of data, and there are 30":  build(in, out, relu, weights(data24, sub(4, make([]byte, 24)))),
		"TensorProto has its field 9 twice":               build(in, out, relu, weights(data24, data24)),
		"elements of type 99":                             build(in, out, relu, sub(fieldInitializer, integer(2, 99))),
		"a segment of one":                                build(in, out, relu, weights(data24, sub(3, integer(1, 1)))),
		"is negative, or has more than":                   build(in, out, relu, weights(data24, integer(1, 1<<62), integer(1, 1<<62))),
		"shape [2 3 -1]":                                  build(in, out, relu, weights(data24, integer(1, -1))),
		"a tensor has more than 64":                       build(in, out, relu, weights(data24, sub(1, make([]byte, 100)))),
		"shape [4194304] is negative, or":                 build(in, out, relu, sparse),
	} {
		if _, err := parsed(t, model); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func dims(n int) []any {
	d := make([]any, n)
	for i := range d {
		d[i] = 1
	}
	return d
}

// TestFunctionsAreBounded checks functions that call one another.
func TestFunctionsAreBounded(t *testing.T) {
	call := func(field protowire.Number, name string) []byte {
		return node(field, name, []string{"in"}, []string{"out"}, text(7, "own"))
	}
	function := func(name string, calls ...string) []byte {
		parts := [][]byte{text(1, name), text(10, "own")}
		for _, c := range calls {
			parts = append(parts, call(7, c))
		}
		return sub(25, parts...)
	}
	model := func(functions ...[]byte) []byte {
		return append(build(in, out, call(fieldNode, "F0")), bytes.Join(functions, nil)...)
	}
	var bomb, chain [][]byte
	for i := range 30 {
		next := fmt.Sprintf("F%d", i+1)
		bomb, chain = append(bomb, function(fmt.Sprintf("F%d", i), next, next)), append(chain, function(fmt.Sprintf("F%d", i), next))
	}
	bomb, chain = append(bomb[:5], function("F5", strings.Fields(strings.Repeat(" F6", 120))...), function("F6")), append(chain, function("F30"))
	for want, m := range map[string][]byte{
		"become more than 4096":           model(bomb...),
		"to a depth of more than 8":       model(chain...),
		`"own.F0" calls itself`:           model(function("F0", "F1"), function("F1", "F0")),
		`operators of domain "own"`:       model(function("F0", "F1")),
		`defines the function "F0" twice`: model(function("F0"), function("F0")),
	} {
		if _, err := parsed(t, m); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := parsed(t, model(function("F0", "F1", "F1"), function("F1"))); err != nil {
		t.Error(err)
	}
}

// TestWeightsInOtherFiles checks where the data of a tensor may be.
func TestWeightsInOtherFiles(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "model")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "w.bin"), make([]byte, 48), 0o644),
		os.WriteFile(filepath.Join(parent, "secret"), make([]byte, 48), 0o644), os.Symlink("../secret", filepath.Join(dir, "out.bin")),
		os.Symlink("w.bin", filepath.Join(dir, "in.bin")), mkfifo(filepath.Join(dir, "fifo")), os.Symlink("/dev/zero", filepath.Join(dir, "zero")))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		weights []byte
		want    string
	}{
		{outside("location", "w.bin"), ""},
		{outside("location", "in.bin"), ""},
		{outside("location", "./sub/..hidden"), "no such file"},
		{outside("location", "w.bin", "offset", "24", "length", "24"), ""},
		{outside("location", "w.bin", "offset", "25"), "25 to 49"},
		{outside("location", "w.bin", "offset", "9223372036854775807"), "is truncated"},
		{outside("location", "w.bin", "offset", "-1"), "is truncated"},
		{outside("location", "w.bin", "offset", "0x10"), "at offset"},
		{outside("location", "w.bin", "length", "48"), "24 bytes of data, and 48"},
		{outside("location", "w.bin", "location", "in.bin"), "twice"},
		{outside(), "without a file"},
		{outside("location", "../secret"), "not below the model's folder"},
		{outside("location", "sub/../w.bin"), "not below the model's folder"},
		{outside("location", filepath.Join(parent, "secret")), "not below the model's folder"},
		{outside("location", "*/_ORT_MEM_ADDR_/*", "offset", "4096"), "not below the model's folder"},
		{outside("location", "w.bin\x00"), "not below the model's folder"},
		{outside("location", "w.bin\x1b[2J"), "not below the model's folder"},
		{outside("location", "out.bin"), "escapes"},
		{outside("location", "zero"), "escapes"},
		{outside("location", "fifo"), "no regular file"},
		{outside("location", "sub"), "no regular file"},
		{outside("location", "missing"), "no such file"},
	} {
		model := build(in, out, relu, c.weights)
		m, err := parsedIn(t, dir, model)
		switch {
		case c.want == "" && (err != nil || len(m.Files) != 1 || m.Size != int64(len(model)+48)):
			t.Errorf("%+v %v", m, err)
		case c.want != "" && (!errors.Is(err, ErrModel) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

// TestTheDigestCoversAllFiles changes the weights in another file, and bounds the size of both.
func TestTheDigestCoversAllFiles(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "m.onnx")
	if err := os.WriteFile(at, build(in, out, relu, outside("location", "w.bin")), 0o644); err != nil {
		t.Fatal(err)
	}
	digests := map[string]bool{}
	for _, b := range []byte{0, 1} {
		data := append(make([]byte, 47), b)
		if err := os.WriteFile(filepath.Join(dir, "w.bin"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(at, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		digests[m.Digest] = true
	}
	if len(digests) != 2 {
		t.Error("the digest does not depend on the weights")
	}
	info, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(at, Limits{Bytes: info.Size() + 47}); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "its files have more than") {
		t.Error(err)
	}
}

// TestOnlyRegularFilesAreOpened checks what else a path may lead to.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := mkfifo(fifo); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{fifo: "no regular file", dir: "no regular file", "/dev/zero": "no regular file", fifo + "x": "no such file"} {
		if _, err := Open(path, Limits{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "model "+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	big := filepath.Join(dir, "big")
	if err := errors.Join(os.WriteFile(big, nil, 0o644), os.Truncate(big, 1<<40)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(big, Limits{}); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "more than 1073741824") {
		t.Error(err)
	}
}
