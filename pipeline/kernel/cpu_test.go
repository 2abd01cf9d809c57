// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// TestKernelsOnCPU runs the tests of gpu_test.go with the examples compiled as C++ for the CPU. It tests what they find
// and paint, and how they are called, but not what a GPU adds: compiler, concurrent threads, memory, faults.
func TestKernelsOnCPU(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestGPU", "-test.v")
	env := cudatest.StandIn(t, t.TempDir(), "../isp/cuda/testdata/device.cpp", "testdata")
	cmd.Env = slices.Concat(os.Environ(), env, []string{"STANDIN_AT_ONCE=1", "TEGRACAST_GPU=1"})
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || !strings.Contains(string(out), "this CPU") {
		t.Fatalf("%v\n%s", err, out)
	}
}
