// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// gpu opens CUDA, or skips the test: CI has no GPU. `make gpu-test` runs these tests on a machine that has one.
func gpu(t testing.TB) *CUDA {
	t.Helper()
	a, err := Open(Config{Backend: "cuda", Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, ErrNoCUDA) && os.Getenv("TEGRACAST_GPU") == "" {
		t.Skipf("NEEDS A GPU with NVIDIA's driver: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	c := a.(*CUDA)
	t.Cleanup(func() {
		if err := c.Device.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestGPUBuffers(t *testing.T) {
	c := gpu(t)
	t.Log(c.Device)
	free, total, err := c.Device.FreeMemory()
	if err != nil || free <= 0 || free > total {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
	ids := map[uint64]bool{}
	for _, size := range []int{1, 4096, 4097, 1920 * 1080 * 2} {
		for _, flags := range []Flags{Default, Mapped, Portable | Mapped, WriteCombined | Mapped, Shared | Mapped} {
			b, err := c.AllocHost(size, flags)
			if err != nil {
				t.Fatal(err)
			}
			info, err := c.Inspect(b.Addr())
			if err != nil || !info.Host || info.Managed || info.BufferID != b.id || info.Start > b.Addr()-pageSize || ids[b.id] {
				t.Errorf("%d bytes, flags %d: %+v, id %d, %v", size, flags, info, b.id, err)
			}
			ids[b.id] = true
			if len(b.Bytes()) != size || b.Addr()%pageSize != 0 || b.DevicePointer() == 0 {
				t.Errorf("%d bytes at %#x, device %#x", len(b.Bytes()), b.Addr(), b.DevicePointer())
			}
			if flags&WriteCombined == 0 && strings.Trim(string(b.Bytes()), "\x00") != "" {
				t.Error("memory is not zeroed")
			}
			if err := errors.Join(b.Close()); err != nil {
				t.Error(err)
			}
			if err := b.Close(); !errors.Is(err, ErrFreed) {
				t.Errorf("second Close: %v", err)
			}
		}
	}
	if _, err := c.AllocHost(1<<39, Default); err == nil {
		t.Error("half a terabyte was allocated")
	} else if e := (*Error)(nil); !errors.As(err, &e) || e.Name != "CUDA_ERROR_OUT_OF_MEMORY" || e.Sticky() {
		t.Errorf("%v", err)
	}
}

const doubling = `
extern "C" __global__ void twice(const unsigned *in, unsigned *out, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) out[i] = 2 * in[i] + 1;
}`

// compiled compiles a source, and returns the module and one of its kernels.
func compiled(t *testing.T, c *CUDA, source, kernel string) (*Module, *Kernel) {
	t.Helper()
	compiler, err := c.Device.NewCompiler("")
	if err != nil {
		t.Fatal(err)
	}
	code, _, err := compiler.Compile(kernel+".cu", source)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Device.Load(code)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel(kernel)
	if err != nil {
		t.Fatal(err)
	}
	return m, k
}

func TestGPUKernel(t *testing.T) {
	c := gpu(t)
	m, k := compiled(t, c, doubling, "twice")
	if _, err := m.Kernel("thrice"); err == nil || !strings.Contains(err.Error(), "thrice") {
		t.Errorf("a kernel that is not there: %v", err)
	}
	s, err := c.Device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range []Flags{Mapped, Mapped | WriteCombined} {
		runTwice(t, c, k, s, flags)
	}
	if err := errors.Join(s.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

// runTwice makes the kernel read one host buffer and write another, in place.
func runTwice(t *testing.T, c *CUDA, k *Kernel, s *Stream, flags Flags) {
	t.Helper()
	const n = 1 << 20
	in, err := c.AllocHost(4*n, flags)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.AllocHost(4*n, Mapped)
	if err != nil {
		t.Fatal(err)
	}
	words := unsafe.Slice((*uint32)(unsafe.Pointer(&in.Bytes()[0])), n)
	for i := range words {
		words[i] = uint32(i) * 2654435761
	}
	from, to, count := in.DevicePointer(), out.DevicePointer(), int32(n)
	if err := k.Launch(s, Dim{X: n / 256}, Dim{X: 256}, unsafe.Pointer(&from), unsafe.Pointer(&to), unsafe.Pointer(&count)); err != nil {
		t.Fatal(err)
	}
	f, err := s.Fence()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for i, v := range unsafe.Slice((*uint32)(unsafe.Pointer(&out.Bytes()[0])), n) {
		if want := 2*uint32(i)*2654435761 + 1; v != want {
			t.Fatalf("flags %d: word %d is %#x, want %#x", flags, i, v, want)
		}
	}
	if err := errors.Join(in.Close(), out.Close()); err != nil {
		t.Error(err)
	}
}

// TestGPUNoLeak checks that creating and freeing objects many times leaves the memory as it was.
func TestGPUNoLeak(t *testing.T) {
	c := gpu(t)
	cycle := func() {
		b, err := c.AllocHost(1<<20, Mapped)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Device.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Fence()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Wait(t.Context()), s.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		cycle()
	}
	gone := 0
	for range 3 { // other processes may use the GPU, whereas a leak would recur every time
		before, _, err := c.Device.FreeMemory()
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			cycle()
		}
		after, _, err := c.Device.FreeMemory()
		if err != nil {
			t.Fatal(err)
		}
		if gone = before - after; gone <= 4<<20 {
			return
		}
	}
	t.Errorf("%d bytes of device memory are gone", gone)
}

// TestGPUOutOfMemory allocates all memory of the GPU, piece by piece. The first failure must be an error that says so
// and loses nothing, and memory that was freed must be available again.
func TestGPUOutOfMemory(t *testing.T) {
	c := gpu(t)
	pieces, err := exhaust(c.Device)
	if e := (*Error)(nil); !errors.As(err, &e) || e.Name != "CUDA_ERROR_OUT_OF_MEMORY" || e.Sticky() {
		t.Errorf("when all is taken: %v", err)
	}
	if free, total, err := c.Device.FreeMemory(); err != nil || free > total/8 {
		t.Errorf("%d pieces were taken, %d of %d bytes are free, %v", len(pieces), free, total, err)
	}
	for _, m := range pieces {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	m, err := c.Device.AllocDevice(1 << 28)
	if err != nil {
		t.Fatalf("afterwards: %v", err)
	}
	if err := errors.Join(m.Write([]byte{1, 2, 3}), m.Close()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// exhaust allocates ever smaller pieces, down to 1 MiB, until none is left, and returns them with the last error.
func exhaust(g *Device) (pieces []*DeviceMemory, err error) {
	for size := 1 << 32; size >= 1<<20; size /= 2 {
		for {
			m, e := g.AllocDevice(size)
			if e != nil {
				err = e
				break
			}
			pieces = append(pieces, m)
		}
	}
	return pieces, err
}

// TestGPUSticky makes CUDA unusable for the process, so it runs in a separate one.
func TestGPUSticky(t *testing.T) {
	if os.Getenv("TEGRACAST_STICKY") == "" {
		gpu(t) // or skips the test
		out, err := rerun(t, "TestGPUSticky", "TEGRACAST_STICKY=1")
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	a, err := Open(Config{Backend: "cuda"})
	if err != nil {
		t.Fatal(err)
	}
	c := a.(*CUDA)
	_, k := compiled(t, c, `extern "C" __global__ void wild(int *p) { *p = 1; }`, "wild")
	s, err := c.Device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	address := uintptr(0x10)
	if err := k.Launch(s, Dim{X: 1}, Dim{X: 1}, unsafe.Pointer(&address)); err != nil {
		t.Fatal(err)
	}
	f, err := s.Fence()
	if err != nil {
		t.Fatal(err)
	}
	var e *Error
	if err := f.Wait(t.Context()); !errors.As(err, &e) || e.Name != "CUDA_ERROR_ILLEGAL_ADDRESS" || !e.Sticky() {
		t.Errorf("a wild store: %v", err)
	}
	if _, err := c.AllocHost(4096, Mapped); !errors.As(err, &e) || !e.Sticky() {
		t.Errorf("what comes after: %v", err)
	}
}
