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

// TestCompiles has NVIDIA's own compiler make the kernels for Jetsons: Xavier, Orin. It says that they are CUDA C++, not
// what they compute.
func TestCompiles(t *testing.T) {
	capabilities := []int{87, 72}
	if testing.Short() {
		capabilities = capabilities[:1]
	}
	for _, capability := range capabilities {
		t.Run(fmt.Sprintf("sm_%d", capability), func(t *testing.T) {
			compiler := cudatest.Compiler(t, capability, "", slog.New(slog.DiscardHandler))
			done := map[string]bool{}
			for _, c := range benchCases() {
				in, want := c.formats(t, 1)
				r, err := isp.NewRecipe(c.config, in, want)
				if err != nil {
					t.Fatal(err)
				}
				choice := options(r)
				key := strings.Join(choice, " ")
				if done[key] {
					continue // the same kernels
				}
				done[key] = true
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					code, _, err := compiler.Compile("isp.cu", source(), choice...)
					if err != nil {
						t.Fatal(err)
					}
					for i := range want {
						if name := fmt.Sprintf(".text.picture%d\x00", i); !bytes.Contains(code, []byte(name)) {
							t.Errorf("no kernel picture%d in %d bytes", i, len(code))
						}
					}
				})
			}
		})
	}
}
