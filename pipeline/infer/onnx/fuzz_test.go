// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

// FuzzParse checks that a file is read or refused, and that what is read is within the limits.
func FuzzParse(f *testing.F) {
	f.Add(build(in, out, relu))
	f.Add(build(in, out, relu, weights(data24)))
	f.Add(build(in, out, relu, outside("location", "w.bin", "offset", "0", "length", "24")))
	f.Add(build(value(fieldInput, "scalar", tensor.Int64), out, node(fieldNode, "If", nil, []string{"out"}, sub(5, text(1, "then_branch"), sub(6, relu)))))
	f.Add(append(build(in, out, node(fieldNode, "F", nil, []string{"out"}, text(7, "own"))), sub(25, text(1, "F"), text(10, "own"), node(7, "Add", nil, []string{"b"}))...))
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
