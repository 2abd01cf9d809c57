// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// onCPU reports whether a stand-in runs the kernels.
func onCPU() bool { return os.Getenv("STANDIN_FOLDER") != "" }

// A bench has what kernels need.
type bench struct {
	memory   *cudahost.CUDA
	compiler *cudahost.Compiler
	stream   *cudahost.Stream
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{memory: cudatest.GPU(t)}
	t.Log(b.memory.Device)
	b.memory.Device.Logger = slog.New(slog.DiscardHandler)
	var err error
	if b.compiler, err = b.memory.Device.NewCompiler(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if b.stream, err = b.memory.Device.NewStream(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.stream.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// host returns memory that the GPU can access, filled with canaries.
func (b *bench) host(t testing.TB, size int) *cudahost.Buffer {
	t.Helper()
	m, err := b.memory.AllocHost(size, cudahost.Mapped)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range m.Bytes() {
		m.Bytes()[i] = canary
	}
	return m
}

// compare makes a tensor on GPU and CPU, of a frame of noise.
func (b *bench) compare(t *testing.T, c Config, rnd *rand.Rand) {
	t.Helper()
	k, err := NewKernel(b.memory.Device, b.compiler, c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := preprocessor(t, c)
	frame, into, want := b.host(t, c.Format.Size()), b.host(t, p.bytes+64), make([]byte, p.bytes)
	noise(rnd, frame.Bytes())
	p.Process(frame.Bytes(), want)
	if err := k.Enqueue(b.stream, frame.DevicePointer(), into.DevicePointer()); err != nil {
		t.Fatal(err)
	}
	fence, err := b.stream.Fence()
	if err != nil {
		t.Fatal(err)
	}
	if err := fence.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, behind := into.Bytes()[:p.bytes], into.Bytes()[p.bytes:]
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%+v: byte %d of %d is %d, on the CPU %d", c, i, len(got), got[i], want[i])
		}
	}
	if !bytes.Equal(behind, bytes.Repeat([]byte{canary}, len(behind))) {
		t.Fatalf("%+v: what is behind the tensor was written", c)
	}
	if k.Info().String() != p.Info().String() || k.Placement() != p.Placement() {
		t.Errorf("%+v: %s, %+v; on the CPU %s, %+v", c, k.Info(), k.Placement(), p.Info(), p.Placement())
	}
}

// TestGPUAgainstCPU compares tensors of random configurations, bit by bit.
func TestGPUAgainstCPU(t *testing.T) {
	b := newBench(t)
	count, side := 400, 300
	if onCPU() { // it compiles for a second
		count, side = 12, 60
	}
	for i := range count {
		rnd := rand.New(rand.NewPCG(uint64(i), 6))
		b.compare(t, randomConfig(rnd, side), rnd)
	}
}

// TestKernelOnCPU runs TestGPUAgainstCPU with the kernel compiled as C++ for the CPU. It tests the kernel's arithmetic and
// how it is called, but not what a GPU adds: compiler, concurrent threads, memory.
func TestKernelOnCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const stage = "../../isp/cuda/testdata"
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestGPUAgainstCPU$", "-test.v")
	cmd.Env = slices.Concat(os.Environ(), cudatest.StandIn(t, t.TempDir(), stage+"/device.cpp", stage), []string{"TEGRACAST_GPU=1"})
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || !strings.Contains(string(out), "this CPU") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestCompiles compiles the kernel with NVIDIA's own compiler for Jetsons: Xavier, Orin.
func TestCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	for _, capability := range []int{87, 72} {
		compiler := cudatest.Compiler(t, capability, "", slog.New(slog.DiscardHandler))
		for _, pixel := range formats {
			c := cases(t, pixel)[0]
			if c.NHWC = pixel == pipeline.UYVY; c.NHWC {
				c.Type = tensor.Float16
			}
			if code, _, err := compiler.Compile("preprocess.cu", source, options(&c)...); err != nil || !bytes.Contains(code, []byte(".text.preprocess\x00")) {
				t.Errorf("sm_%d, %s: %d bytes, %v", capability, pixel, len(code), err)
			}
		}
	}
}

// BenchmarkGPU measures frames that are in the device's memory, and a wait for each.
func BenchmarkGPU(b *testing.B) {
	g := newBench(b)
	for _, pixel := range []pipeline.PixelFormat{pipeline.RGB24, pipeline.UYVY, pipeline.NV12} {
		for _, c := range cases(b, pixel) {
			b.Run(fmt.Sprintf("%s/%dx%d", pixel, c.Width, c.Height), func(b *testing.B) {
				k, err := NewKernel(g.memory.Device, g.compiler, c)
				if err != nil {
					b.Fatal(err)
				}
				defer k.Close()
				frame, err := g.memory.Device.AllocDevice(c.Format.Size())
				if err != nil {
					b.Fatal(err)
				}
				defer frame.Close()
				into, err := g.memory.Device.AllocDevice(k.bytes)
				if err != nil {
					b.Fatal(err)
				}
				defer into.Close()
				for b.Loop() {
					if err := errors.Join(k.Enqueue(g.stream, frame.Pointer, into.Pointer), g.stream.Synchronize()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
