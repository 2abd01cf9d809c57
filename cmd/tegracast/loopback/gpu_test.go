// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// TestLoopbackKernelsOnCPU runs the tests of the validation run on CUDA with a stand-in that executes the kernels on the
// CPU.
func TestLoopbackKernelsOnCPU(t *testing.T) {
	const testdata = "../../../pipeline/isp/cuda/testdata"
	env := cudatest.StandIn(t, t.TempDir(), testdata+"/device.cpp", testdata)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestGPULoopback", "-test.v")
	cmd.Env = slices.Concat(os.Environ(), env, []string{"TEGRACAST_GPU=1"})
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || strings.Count(string(out), "--- PASS") < 2 {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestLoopbackCompiles compiles the kernels of the validation run for Orin with NVIDIA's compiler.
func TestLoopbackCompiles(t *testing.T) {
	if _, _, err := cudatest.Compiler(t, 87, "", slog.New(slog.DiscardHandler)).Compile("loopback.cu", loopbackSource); err != nil {
		t.Fatal(err)
	}
}

// TestGPULoopback copies through the FPGA model, with both kinds of memory.
func TestGPULoopback(t *testing.T) {
	needGPU(t)
	for _, c := range []struct {
		size, count int
		direction   string
		lanes       int
	}{{1, 2, "both", 4}, {4097, 3, "both", 4}, {4 << 20, 3, "both", 4}, {70000, 10, "h2c", 2}} {
		o := DefaultOptions()
		o.Memory, o.Size, o.Count, o.Direction = "cuda", c.size, c.count, c.direction
		r, err := Run(t.Context(), terminal.Env{Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler)}, o)
		if err == nil {
			err = r.Print(io.Discard, o)
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if r.Wrong != 0 || r.Copies < 4 || len(r.Lanes) != c.lanes || r.Lanes[0].Memory != "default" || r.Lanes[c.lanes-1].Memory != "write-combined" {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// needGPU skips the test without a GPU. CI has none. `make gpu-test` builds the binary that runs these tests on a machine
// with one.
func needGPU(t *testing.T) {
	t.Helper()
	if os.Getenv("TEGRACAST_GPU") == "" {
		t.Skip("NEEDS A GPU with NVIDIA's driver: make gpu-test")
	}
}

// TestGPULoopbackHands checks that the kernels fill and compare like the CPU, and find the first wrong byte at any
// position.
func TestGPULoopbackHands(t *testing.T) {
	needGPU(t)
	memory, err := cudahost.Open(cudahost.Config{Backend: "cuda"})
	if err != nil {
		t.Fatal(err)
	}
	sim, err := tegrasim.New(tegrasim.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if generation, _ := sim.Fenced(); sim.Resume(generation) != nil {
		t.Fatal("the fence stays")
	}
	const size, room = 2*tegra.PageSize + 5, 3 * tegra.PageSize
	surface := func(dir tegra.Direction) *capture.Surface {
		s, err := capture.NewSurface(memory, sim, size, cudahost.Mapped, dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	src, dst := surface(tegra.ToDevice), surface(tegra.FromDevice)
	h, err := newHand(t.Context(), memory, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := h.(*gpuHand); !ok {
		t.Fatalf("a %T works on CUDA's memory", h)
	}
	from, to := src.Buffer.Bytes(), dst.Buffer.Bytes()
	var before string
	for seed := range uint64(2) {
		if err := h.fill(t.Context(), seed); err != nil {
			t.Fatal(err)
		}
		if len(to) != room || string(from) == before || from[0]|from[1]|from[2]|from[3] == 0 {
			t.Errorf("seed %d: %d bytes, %x", seed, len(to), from[:8])
		}
		before = string(from)
	}
	is := func(what string, want int) {
		t.Helper()
		at, ok, err := h.mismatch(t.Context(), size)
		cpuAt, cpuOK, _ := (&cpuHand{src: []byte(before), dst: to}).mismatch(t.Context(), size)
		if err != nil || ok != (want < 0) || !ok && at != want || ok != cpuOK || !ok && at != cpuAt {
			t.Errorf("%s: %d, %v, %v, want %d; the CPU finds %d, %v", what, at, ok, err, want, cpuAt, cpuOK)
		}
	}
	is("nothing was copied", 0)
	copy(to, from[:size])
	is("all was copied", -1)
	for _, at := range []int{0, 3, 4097, size - 1, size, room - 1} {
		to[at] ^= 0x10
		is("a bit", at)
		to[at] ^= 0x10
	}
	is("all was copied again", -1)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for _, s := range []*capture.Surface{src, dst} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := memory.Close(); err != nil {
		t.Error(err)
	}
	if err := sim.Close(); err != nil {
		t.Error(err)
	}
}
