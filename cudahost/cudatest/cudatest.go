// SPDX-License-Identifier: Apache-2.0

package cudatest

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/cudahost"
)

// GPU opens CUDA. Without a GPU it skips the test, because CI has none, or fails it if TEGRACAST_GPU is set. `make
// gpu-test` builds the binaries that run these tests on a machine with a GPU.
func GPU(t testing.TB) *cudahost.CUDA {
	t.Helper()
	a, err := cudahost.Open(cudahost.Config{Backend: "cuda", Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, cudahost.ErrNoCUDA) && os.Getenv("TEGRACAST_GPU") == "" {
		t.Skipf("NEEDS A GPU with NVIDIA's driver: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a.(*cudahost.CUDA)
}

// StandIn builds a stand-in for libcuda and NVRTC into folder, from the source file device. The stand-in compiles
// kernels as C++ for the CPU, with the help of the files in the folder sources. StandIn returns the environment
// variables, "NAME=value", for a process that uses the stand-in.
func StandIn(t testing.TB, folder, device, sources string) []string {
	t.Helper()
	sources, err := filepath.Abs(sources)
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(folder, "libcuda.so.1")
	Library(t, library, device)
	if err := os.Symlink(library, filepath.Join(folder, "libnvrtc.so.13")); err != nil {
		t.Fatal(err)
	}
	return []string{"LD_LIBRARY_PATH=" + folder, "STANDIN_FOLDER=" + folder, "STANDIN_SOURCE=" + sources}
}

// LibCUfile builds the stand-in for libcufile into folder, from the package cufile in the folder source.
func LibCUfile(t testing.TB, folder, source string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", filepath.Join(folder, "libcufile.so.0"),
		filepath.Join(source, "testdata", "libcufile.c"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// Library compiles a C++ file into a shared library whose soname is its file name, so that once it has been opened, the
// process finds it by that name.
func Library(t testing.TB, to, source string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "g++", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wl,-soname,"+filepath.Base(to), "-o", to, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
}
