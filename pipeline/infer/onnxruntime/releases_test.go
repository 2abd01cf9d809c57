// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline/arm64test"
	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// Variables by which TestOtherRelease, in a process of its own, is told what to do: two releases in one process would
// share symbols.
const (
	envLibrary = "TEGRACAST_ONNXRUNTIME"        // the library's file
	envModels  = "TEGRACAST_ONNXRUNTIME_MODELS" // names of models
	envOutputs = "TEGRACAST_ONNXRUNTIME_OUTPUTS"
)

// TestOtherRelease runs models with a library and writes their outputs into a folder. Other tests call it.
func TestOtherRelease(t *testing.T) {
	if os.Getenv(envLibrary) == "" {
		t.Skip("NEEDS a library, which TestReleases gives it in a process of its own")
	}
	r := opened(t, os.Getenv(envLibrary))
	for name := range strings.FieldsSeq(os.Getenv(envModels)) {
		if err := os.WriteFile(filepath.Join(os.Getenv(envOutputs), name), compute(t, r, name).Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(envOutputs), "release"), []byte(r.Version()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// written returns an output that has been written into a file.
func written(t *testing.T, path string) []float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := tensor.Tensor{Data: data}
	return out.Float32s()
}

// TestReleases compares the outputs of releases for this machine.
func TestReleases(t *testing.T) {
	models := []string{infertest.Classifier, infertest.Detector, infertest.Recognizer}
	r, want := newest(t), map[string][]float32{}
	for _, m := range models {
		out := compute(t, r, m)
		want[m] = out.Float32s()
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for release, find := range map[string]func(t *testing.T) (line []string, library string){
		infertest.Oldest: func(t *testing.T) ([]string, string) {
			return []string{program}, infertest.Library(t, infertest.Oldest, runtime.GOARCH)
		},
		"1.21.0": func(t *testing.T) ([]string, string) {
			p := infertest.Debian(t)
			line, err := p.Command(program)
			libraries, _ := filepath.Glob(filepath.Join(p.Dir, "usr/lib/*/libonnxruntime.so.1.21")) // the pattern is well-formed
			if err != nil || len(libraries) != 1 {
				t.Fatalf("%v %v", libraries, err)
			}
			return line, libraries[0]
		},
	} {
		t.Run(release, func(t *testing.T) {
			line, library := find(t)
			dir := t.TempDir()
			c := exec.CommandContext(t.Context(), line[0], append(line[1:], "-test.run=^TestOtherRelease$")...)
			c.Env = append(os.Environ(), envLibrary+"="+library, envModels+"="+strings.Join(models, " "), envOutputs+"="+dir)
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, m := range models {
				if bad := differ(written(t, filepath.Join(dir, m)), want[m]); bad != "" {
					t.Errorf("%s: %s", m, bad)
				}
			}
			if got, err := os.ReadFile(filepath.Join(dir, "release")); err != nil || string(got) != release {
				t.Errorf("release %s, %v", got, err)
			}
		})
	}
}

// TestARM64 runs the classifier with the oldest library for arm64, on an emulated processor.
func TestARM64(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long-peers)")
	}
	dir := t.TempDir()
	t.Setenv(envLibrary, infertest.Library(t, infertest.Oldest, "arm64"))
	t.Setenv(envModels, infertest.Classifier)
	t.Setenv(envOutputs, dir)
	arm64test.Run(t, "^TestOtherRelease$")
	want := compute(t, newest(t), infertest.Classifier)
	if bad := differ(written(t, filepath.Join(dir, infertest.Classifier)), want.Float32s()); bad != "" {
		t.Error(bad)
	}
}

// TestOpenCV compares the classifier's output with that of OpenCV's own implementation of the operators. OpenCV 4.6 reads
// the model only with a fixed shape.
func TestOpenCV(t *testing.T) {
	python := infertest.Python(t)
	content, err := os.ReadFile(infertest.Model(t, infertest.Classifier))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	model := filepath.Join(dir, "model.onnx")
	fixed := infertest.WithInput(content, infertest.Value(infertest.FieldInput, "x", tensor.Float32, 1, 3, 48, 192))
	if err := os.WriteFile(model, fixed, 0o644); err != nil {
		t.Fatal(err)
	}
	s := session(t, newest(t), model)
	in, err := s.BindInput(s.Inputs()[0])
	if err != nil {
		t.Fatal(err)
	}
	fill(in.Float32s())
	out, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "in"), in.Data, 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), python, "-c", `import cv2, numpy
net = cv2.dnn.readNetFromONNX("model.onnx")
net.setInput(numpy.fromfile("in", "float32").reshape(1, 3, 48, 192))
net.forward().astype("float32").tofile("out")`)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if bad := differ(written(t, filepath.Join(dir, "out")), out[0].Float32s()); bad != "" {
		t.Error(bad)
	}
}
