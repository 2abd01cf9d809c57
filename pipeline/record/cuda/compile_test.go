// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"log/slog"
	"testing"

	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// TestPackingCompiles compiles the kernels for Orin with NVIDIA's own compiler.
func TestPackingCompiles(t *testing.T) {
	compiler := cudatest.Compiler(t, 87, "", slog.New(slog.DiscardHandler))
	for _, bits := range []string{"10", "12"} {
		if _, _, err := compiler.Compile("pack.cu", source, "-DBITS="+bits); err != nil {
			t.Error(err)
		}
	}
}
