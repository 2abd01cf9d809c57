// SPDX-License-Identifier: Apache-2.0

package cudahost_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// TestCompiler compiles for Orin with NVIDIA's own compiler.
func TestCompiler(t *testing.T) {
	compiling(t, func(cache string, log *slog.Logger) *cudahost.Compiler { return cudatest.Compiler(t, 87, cache, log) })
}

func TestGPUCompiler(t *testing.T) {
	device := cudatest.GPU(t).Device
	compiling(t, func(cache string, log *slog.Logger) *cudahost.Compiler {
		device.Logger = log
		c, err := device.NewCompiler(cache)
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}

// compiling checks that code compiled before is found, even by another Compiler, that a mistake is reported with its
// line, and that a cache that cannot be written is reported and has no other effect.
func compiling(t *testing.T, open func(cache string, log *slog.Logger) *cudahost.Compiler) {
	const source = "extern \"C\" __global__ void k(int *p) {\n\t*p = 1;\n}\n"
	var log bytes.Buffer
	cache := filepath.Join(t.TempDir(), "kernels")
	c := open(cache, slog.New(slog.NewTextHandler(&log, nil)))
	compile := func(c *cudahost.Compiler, want bool, options ...string) []byte {
		t.Helper()
		code, cached, err := c.Compile("k.cu", source, options...)
		if err != nil || cached != want || !bytes.HasPrefix(code, []byte("\x7fELF")) {
			t.Fatalf("cached %v, want %v: %d bytes, %v", cached, want, len(code), err)
		}
		return code
	}
	code := compile(c, false)
	if !bytes.Equal(compile(c, true), code) || !bytes.Equal(compile(open(cache, slog.New(slog.DiscardHandler)), true), code) {
		t.Error("the cache has other bytes")
	}
	compile(c, false, "--use_fast_math")
	if n := strings.Count(log.String(), `msg="kernels are being compiled" source=k.cu`); n != 2 || strings.Contains(log.String(), "WARN") {
		t.Errorf("two were to be compiled:\n%s", &log)
	}
	_, _, err := c.Compile("broken.cu", "__global__ void k() {\n  int x = nonsense;\n}")
	if !errors.Is(err, cudahost.ErrCompile) || !strings.Contains(err.Error(), "broken.cu(2)") || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a mistake in line 2: %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	compile(open(file, slog.New(slog.NewTextHandler(&log, nil))), false)
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "cannot be cached") {
		t.Errorf("a cache that is no folder:\n%s", &log)
	}
}
