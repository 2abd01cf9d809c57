// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

const modelText = `
memory: host
sources: [{name: camera, model: {width: 640, height: 480, rate: 30}}]
isp: [{name: isp}]
infer:
  - {name: model, model: %s, input: {size: [32, 16]}, output: {kind: classes}}
outputs: [{name: out, from: model, results: {tcp: "127.0.0.1:5011"}}]
`

// modelFile writes a model with an input of 32 x 16 pixels, whose number of channels and type of elements are given, and
// an output of 10 classes.
func modelFile(t *testing.T, folder string, kind tensor.Type, channels any) string {
	t.Helper()
	b := infertest.Build(
		infertest.Value(infertest.FieldInput, "picture", kind, 1, channels, "height", 32),
		infertest.Value(infertest.FieldOutput, "scores", tensor.Float32, 1, 10),
		infertest.Node(infertest.FieldNode, "Gemm", []string{"picture"}, []string{"scores"}),
	)
	path := filepath.Join(folder, fmt.Sprintf("model-%d-%v.onnx", kind, channels))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// changed returns modelText with a model and with old replaced by new.
func changed(t *testing.T, path, old, new string) []byte {
	t.Helper()
	text := strings.Replace(fmt.Sprintf(modelText, path), old, new, 1)
	if old != "" && !strings.Contains(text, new) {
		t.Fatalf("nothing to replace: %q", old)
	}
	return []byte(text)
}

// TestModelsThatDoNotFit checks that a mistake is named with its key, what the model has, and what to write.
func TestModelsThatDoNotFit(t *testing.T) {
	dir := t.TempDir()
	good := modelFile(t, dir, tensor.Float32, 3)
	if _, err := Parse("c.yaml", changed(t, good, "", "")); err != nil {
		t.Fatal(err)
	}
	labels := filepath.Join(dir, "labels")
	if err := os.WriteFile(labels, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, old, new, says string }{
		{dir + "/none.onnx", "", "", "infer[0].model: model " + dir + "/none.onnx: "},
		{labels, "", "", "infer[0].model: model " + labels + ": "},
		{modelFile(t, dir, tensor.Int64, 3), "", "", `input: "picture" int64 [1 3 ? 32]: must have elements of float32, float16 or uint8`},
		{modelFile(t, dir, tensor.Float32, 32), "", "", `input.layout: "picture" float32 [1 32 ? 32] has 32 channels, and must have 1 or 3: is its layout nhwc?`},
		{good, "input: {size: [32, 16]}, ", "", "input.size: the model leaves its height open: write the size"},
		{good, "[32, 16]", "[64, 16]", "input.size: the model has a width of 32, and size has 64"},
		{good, "[32, 16]", "[32, 0]", "infer[0].input.size: [32 0]: write [width, height], each from 1 to 8192"},
		{good, "[32, 16]", "[32, 16], mean: [1, 2]", "infer[0].input.mean: two numbers: write one for all channels, or three"},
		{good, "[32, 16]", "[32, 16], crop: [0, 0, 0, 9]", "infer[0].input.crop: [0 0 0 9]: write [x, y, width, height]"},
		{good, "[32, 16]", "[32, 16], crop: [600, 0, 64, 64]", "is not within the frame, which has 640 x 480 pixels"},
		{good, "kind: classes", "kind: detections", "output: "},
		{good, "kind: classes", "kind: classes, labels: " + labels, "output: "},
		{good, "kind: classes", "kind: classes, labels: " + dir + "/none", "infer[0].output.labels: "},
		{good, "size: [32, 16]}", "size: [32, 16]}, deadline: 2s", "infer[0].deadline: 2s: must be at most 1s"},
		{good, "size: [32, 16]}", "size: [32, 16]}, from: nobody", `infer[0].from: there is no source and no stage above this one called "nobody"`},
		{good, "size: [32, 16]}", "size: [32, 16]}, providers: [gpu]", "infer[0].providers[0]: "},
	} {
		_, err := Parse("c.yaml", changed(t, c.path, c.old, c.new))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.says, err)
		} else {
			t.Log(err)
		}
	}
}

// TestChangedModels checks that a reload sees files that have changed under the same name.
func TestChangedModels(t *testing.T) {
	dir := t.TempDir()
	path, labels := modelFile(t, dir, tensor.Float32, 3), filepath.Join(dir, "labels")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(labels, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *Appliance {
		t.Helper()
		a, err := Parse("c.yaml", changed(t, path, "kind: classes", "kind: classes, labels: "+labels))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	write(strings.Repeat("a\n", 10))
	first := read()
	if list := Changes(first, read()); len(list) != 0 || !first.Stage("model").Adjusts(read().Stage("model")) {
		t.Errorf("nothing has changed: %v", list)
	}
	write(strings.Repeat("b\n", 10))
	second := read()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(b, infertest.Sub(2, "another producer")...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, pair := range [][2]*Appliance{{first, second}, {second, read()}} {
		if list := Changes(pair[0], pair[1]); len(list) != 1 || list[0] != "infer[model].model" || pair[0].Stage("model").Adjusts(pair[1].Stage("model")) {
			t.Errorf("change %d: %v", i, list)
		}
	}
}

// TestModelsFromThePage checks that a text that comes from the page names no files but those of the installed file, and
// models in the folder for them.
func TestModelsFromThePage(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	inside, outside := modelFile(t, folder, tensor.Float32, 3), modelFile(t, elsewhere, tensor.Float32, 3)
	link := filepath.Join(folder, "link.onnx")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	installed, err := Parse("c.yaml", append(changed(t, inside, "", ""), "web: {models: "+folder+"}\n"...))
	if err != nil {
		t.Fatal(err)
	}
	other, err := Parse("c.yaml", append(changed(t, outside, "}}", "}}"), "web: {models: "+folder+"}\n"...))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, old, new string
		installed      *Appliance
		says           string
	}{
		{inside, "", "", installed, ""},
		{inside, "", "", other, ""},
		{outside, "", "", other, ""},
		{outside, "", "", installed, "infer[0].model: "},
		{link, "", "", installed, "infer[0].model: "},
		{folder + "/../" + filepath.Base(elsewhere) + "/" + filepath.Base(outside), "", "", installed, "infer[0].model: "},
		{inside, "kind: classes", "kind: classes, labels: /etc/passwd", installed, "infer[0].output.labels: "},
		{inside, "size: [32, 16]}", "size: [32, 16]}, library: /tmp/evil.so", installed, "infer[0].library: "},
		{inside, "", "", &Appliance{}, "while the installed configuration has a mistake"},
	} {
		_, err := ParseFromPage("page", changed(t, c.path, c.old, c.new), c.installed)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s %q: %v", c.path, c.new, err)
		}
	}
}
