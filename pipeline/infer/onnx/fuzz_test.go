// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

// FuzzParse checks that a file is read or refused, and that what is read is within the limits.
func FuzzParse(f *testing.F) {
	f.Add(infertest.Build(in, out, relu))
	f.Add(infertest.Build(in, out, relu, weights(data24)))
	f.Add(infertest.Build(in, out, relu, outside("location", "w.bin", "offset", "0", "length", "24")))
	f.Add(infertest.Build(infertest.Value(infertest.FieldInput, "scalar", tensor.Int64), out, infertest.Node(infertest.FieldNode, "If", nil, []string{"out"}, infertest.Sub(5, infertest.Sub(1, "then_branch"), infertest.Sub(6, relu)))))
	f.Add(append(infertest.Build(in, out, infertest.Node(infertest.FieldNode, "F", nil, []string{"out"}, infertest.Sub(7, "own"))), infertest.Sub(25, infertest.Sub(1, "F"), infertest.Sub(10, "own"), infertest.Node(7, "Add", nil, []string{"b"}))...))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, model []byte) {
		m, err := parsedIn(t, dir, model)
		if err != nil {
			if !errors.Is(err, ErrModel) {
				t.Fatal(err)
			}
			return
		}
		if len(m.Inputs) == 0 || len(m.Outputs) == 0 || len(m.Files) > 0 {
			t.Fatalf("%+v", m)
		}
		for _, info := range append(m.Inputs, m.Outputs...) {
			for _, d := range info.Shape {
				if d < tensor.Dynamic {
					t.Fatalf("%v", info)
				}
			}
			if info.Type.Size() == 0 {
				t.Fatalf("%v", info)
			}
		}
	})
}
