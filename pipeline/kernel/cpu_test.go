package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// standIn builds what stands in for CUDA and its compiler on the CPU, and returns the environment of a process that uses it.
func standIn(t *testing.T) []string {
	t.Helper()
	folder := t.TempDir()
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(folder, "libcuda.so.1")
	build := exec.CommandContext(t.Context(), "g++", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", library, "../isp/cuda/testdata/device.cpp")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	if err := os.Symlink(library, filepath.Join(folder, "libnvrtc.so.13")); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "LD_LIBRARY_PATH="+folder, "STANDIN_FOLDER="+folder, "STANDIN_SOURCE="+testdata, "STANDIN_AT_ONCE=1", "TEGRACAST_GPU=1")
}

// TestKernelsOnCPU runs the tests of gpu_test.go with the examples compiled as C++ for the CPU: what they find and paint, and
// how they are called. That says nothing of what a GPU adds: compiler, threads at the same time, memory, faults.
func TestKernelsOnCPU(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestGPU", "-test.v")
	cmd.Env = standIn(t)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || !strings.Contains(string(out), "this CPU") {
		t.Fatalf("%v\n%s", err, out)
	}
}
