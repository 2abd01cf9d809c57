package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelsOnCPU runs the tests of gpu_test.go with a stand-in for CUDA that compiles the kernels as C++ and runs them
// on the CPU: their arithmetic, and how they are called, are compared with the Go isp's on any machine. That says nothing
// of what a GPU adds: compiler, threads at the same time, memory, streams.
func TestKernelsOnCPU(t *testing.T) {
	folder := t.TempDir()
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(folder, "libcuda.so.1")
	build := exec.Command("g++", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", library, filepath.Join(testdata, "device.cpp"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	if err := os.Symlink(library, filepath.Join(folder, "libnvrtc.so.13")); err != nil {
		t.Fatal(err)
	}
	peer := filepath.Join(folder, "libnppicc.so.13")
	if out, err := exec.Command("g++", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", peer, filepath.Join(testdata, "npp.cpp")).CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	if err := os.Symlink(peer, filepath.Join(folder, "libnppidei.so.13")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestGPU", "-test.v", "-test.parallel", "2")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder, "STANDIN_FOLDER="+folder, "STANDIN_SOURCE="+testdata, "TEGRACAST_GPU=1")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || !strings.Contains(string(out), "this CPU") {
		t.Fatalf("%v\n%s", err, out)
	}
}
