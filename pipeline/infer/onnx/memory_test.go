// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// mark is a name that has its number in front.
var mark = strings.Repeat("x", longest-8)

// writeMany writes a model whose graph has n copies of a part, each with another number in its name.
func writeMany(t *testing.T, path string, part []byte, n int) {
	t.Helper()
	number := bytes.Index(part, []byte("00000000"+mark))
	if number < 0 {
		t.Fatal("the part has no such name")
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, err = file.Write(protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.BytesType), uint64(n*len(part))))
	for i := range n {
		copy(part[number:], fmt.Sprintf("%08d", i))
		_, bad := file.Write(part)
		err = errors.Join(err, bad)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNamesAreBounded opens models of 48 MiB that consist of names, which would all be kept.
func TestNamesAreBounded(t *testing.T) {
	name := "00000000" + mark
	for what, part := range map[string][]byte{
		"outputs of nodes": node(fieldNode, "Relu", nil, []string{name}),
		"operators":        node(fieldNode, name, nil, nil),
		"initialisers":     sub(fieldInitializer, integer(1, 0), integer(2, 1), text(8, name)),
		"functions":        sub(fieldNode, text(8, name)), // that the node calls
		"inputs":           sub(fieldInput, text(1, name), sub(2, sub(1, integer(1, 1), sub(2)))),
	} {
		path := filepath.Join(t.TempDir(), "model.onnx")
		writeMany(t, path, part, 48<<20/len(part))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Open(path, Limits{})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "its names have more than 16777216 bytes") {
			t.Errorf("%s: %v", what, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 40<<20 {
			t.Errorf("%s: %d MiB were allocated", what, used>>20)
		}
	}
}
