// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// TestCompiles compiles the kernels with NVIDIA's own compiler for Jetsons: Xavier, Orin. It checks that they are valid
// CUDA C++, not what they compute.
func TestCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	for _, capability := range []int{87, 72} {
		t.Run(fmt.Sprintf("sm_%d", capability), func(t *testing.T) {
			compiler := cudatest.Compiler(t, capability, "", slog.New(slog.DiscardHandler))
			done := map[string]bool{}
			for _, c := range benchCases() {
				in, want := c.formats(t, 1)
				r, err := isp.NewRecipe(c.config, in, want)
				if err != nil {
					t.Fatal(err)
				}
				list := parts(r, c.config.Observe != nil)
				for _, part := range list {
					list = append(list, strings.Replace(part, ", true)", ", false)", 1)) // for memory that is not aligned
				}
				for _, part := range list {
					choice := append(options(r), part)
					key := strings.Join(choice, " ")
					if done[key] {
						continue // the same kernel
					}
					done[key] = true
					t.Run(c.name+"/"+part, func(t *testing.T) {
						t.Parallel()
						code, _, err := compiler.Compile("isp.cu", source(), choice...)
						if err != nil {
							t.Fatal(err)
						}
						if strings.Contains(part, "PICTURE") && !bytes.Contains(code, []byte(".text.picture\x00")) {
							t.Errorf("no kernel picture in %d bytes", len(code))
						}
					})
				}
			}
		})
	}
}
