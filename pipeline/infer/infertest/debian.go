// SPDX-License-Identifier: Apache-2.0

package infertest

import (
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// Debian returns Debian 13's ONNX Runtime 1.21 with its headers.
func Debian(t testing.TB) vjetson.Packages { return packages(t, "libonnxruntime-dev") }

// Conformance returns the models of the tests of ONNX itself, a folder for each with model.onnx and
// test_data_set_0/input_0.pb, output_0.pb, and so on, which are TensorProtos.
func Conformance(t testing.TB) (folders []string) {
	models, _ := filepath.Glob(filepath.Join(packages(t, "libonnx-testdata").Dir, "usr/share/libonnx-testdata/data/*/*/model.onnx")) // well-formed
	if len(models) < 1000 {
		t.Fatalf("Debian's libonnx-testdata has %d models", len(models))
	}
	for _, m := range models {
		folders = append(folders, filepath.Dir(m))
	}
	return folders
}

func packages(t testing.TB, name string) vjetson.Packages {
	t.Helper()
	p, err := vjetson.FetchPackages(t.Context(), runtime.GOARCH, "trixie", slog.Default(), name)
	if errors.Is(err, vjetson.ErrUnreachable) {
		t.Skipf("NEEDS Debian 13's %s: %v", name, err)
	} else if err != nil {
		t.Fatal(err)
	}
	return p
}
