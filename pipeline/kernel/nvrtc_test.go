// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// TestCompiles compiles the worked examples with NVIDIA's own compiler for Orin, and checks that errors have the file's
// own line numbers.
func TestCompiles(t *testing.T) {
	compiler := cudatest.Compiler(t, 87, "", slog.New(slog.DiscardHandler))
	read := func(c Config) []byte {
		text, err := os.ReadFile(c.File)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	focus, motion := focusConfig(t), motionConfig(t, 1<<16)
	for _, test := range []struct {
		config Config
		text   []byte
		want   []string // contained in the error; nil if there is none
	}{
		{focus, read(focus), nil},
		{focus, append(read(focus), "int broken = nonsense;"...), []string{"focus.cu(", "nonsense"}},
		{Config{File: "k.cu", Entry: "k"}, []byte("extern \"C\" __global__ void k(Input in) {}\n"), []string{"the entry point of k.cu", "write it as"}},
		{motion, read(motion), nil},
	} {
		s := newSource(&test.config, test.text)
		_, _, err := compiler.Compile(s.file, s.text)
		if (err == nil) != (test.want == nil) || err != nil && !errors.Is(err, cudahost.ErrCompile) {
			t.Errorf("%s: %v", s.file, err)
		}
		for _, part := range test.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: no %q in %v", s.file, part, err)
			}
		}
	}
}
