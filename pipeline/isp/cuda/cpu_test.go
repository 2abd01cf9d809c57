// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// TestKernelsOnCPU runs the tests of gpu_test.go with a stand-in for CUDA that compiles the kernels as C++ and runs
// them on the CPU. This compares their arithmetic and the way they are called with the Go isp on any machine. It does
// not test what a GPU adds: compiler, concurrent threads, memory, streams.
func TestKernelsOnCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	folder := t.TempDir()
	env := cudatest.StandIn(t, folder, "testdata/device.cpp", "testdata")
	peer := filepath.Join(folder, "libnppicc.so.13")
	cudatest.Library(t, peer, "testdata/npp.cpp")
	if err := os.Symlink(peer, filepath.Join(folder, "libnppidei.so.13")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args, says := []string{"-test.run", "^TestGPU", "-test.v", "-test.parallel", "2"}, "this CPU"
	if raced {
		args, says = append(args, "-test.skip", "^TestGPU(AgainstGo|RealCapture|Bench)$"), "--- PASS: TestGPUFrames"
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = slices.Concat(os.Environ(), env, []string{"TEGRACAST_GPU=1"})
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || !strings.Contains(string(out), says) {
		t.Fatalf("%v\n%s", err, out)
	}
}
