// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/pipeline/files"
)

//go:embed prelude.cuh
var prelude string

// maxSource is the maximum size in bytes of a kernel's source file.
const maxSource = 1 << 20

// ReadSource reads a user's file. Errors wrap ErrConfig.
func ReadSource(path string) ([]byte, error) {
	text, err := files.ReadRegular(path, maxSource, "a kernel")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return text, nil
}

// A source is a user's file, prepared for the compiler.
type source struct {
	file  string // file name without folders, used in the compiler's errors
	entry string
	text  string
	key   string // identifies what the user wrote, and nothing else; see Key
}

// Key returns the key of a kernel in quarantine: a hash of the file's content and the entry point.
func Key(text []byte, entry string) string {
	h := sha256.New()
	h.Write(text)
	fmt.Fprintf(h, "\x00%s", entry)
	return hex.EncodeToString(h.Sum(nil))
}

// newSource returns the source that consists of the prelude and the text. The compiler's errors still have the line
// numbers of the file.
func newSource(c *Config, text []byte) *source {
	s := &source{file: filepath.Base(c.File), entry: c.Entry, key: Key(text, c.Entry)}
	var b strings.Builder
	second, results := "Output", 0
	if c.Results {
		second, results = "Results *", 1
	}
	fmt.Fprintf(&b, "#define STATE_BYTES %d\n#define BINS %d\n#define RESULTS %d\n", c.State, c.Bins, results)
	b.WriteString(structure("parameters", c.parameterNames()) + structure("numbers", c.Numbers))
	fmt.Fprintf(&b, "#line 1 \"prelude.cuh\"\n%s\n#line 1 %q\n%s\n", prelude, s.file, text)
	fmt.Fprintf(&b, "#line 1 \"the entry point of %s\"\nstatic_assert(SameType<decltype(%s), void(Input, %s, parameters, void *)>::yes, "+
		"\"write it as: extern C __global__ void %[2]s(Input, %s, parameters, void *)\");\n", s.file, s.entry, second, second)
	s.text = b.String()
	return s
}

// structure declares a struct of floats with the given names. An empty struct gets a dummy field, because in C++ it
// would have a size as well.
func structure(name string, fields []string) string {
	if len(fields) == 0 {
		fields = []string{"none"}
	}
	return fmt.Sprintf("struct %s { float %s; };\n", name, strings.Join(fields, ", "))
}

// parameterNames returns the names in the order of the struct.
func (c *Config) parameterNames() []string { return slices.Sorted(maps.Keys(c.Parameters)) }

// parameterValues returns the contents of the struct.
func (c *Config) parameterValues() []float32 {
	var list []float32
	for _, name := range c.parameterNames() {
		list = append(list, float32(c.Parameters[name]))
	}
	if list == nil {
		list = []float32{0}
	}
	return list
}

// EntryOf returns the default entry point of a file: the file's name without folders and extension.
func EntryOf(file string) string {
	base := filepath.Base(file)
	return cmp.Or(strings.TrimSuffix(base, filepath.Ext(base)), base)
}
