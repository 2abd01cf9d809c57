// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// standin builds the stand-in for libcuda. It serves to test the form of the calls and the error paths, not CUDA.
func standin(t testing.TB, defines ...string) string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), "libstandin.so")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-o", lib, "testdata/standin.c"}, defines...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return lib
}

func openStandin(t testing.TB, defines ...string) *CUDA {
	t.Helper()
	a, err := Open(Config{Backend: "cuda", library: standin(t, defines...), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.(*CUDA).Close(); err != nil {
			t.Error(err)
		}
	})
	return a.(*CUDA)
}

// TestNoCUDA checks that each reason is one clear line, and that "auto" falls back to host memory.
func TestNoCUDA(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.so")
	if err := os.WriteFile(broken, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for reason, library := range map[string]string{
		"driver is not installed":   filepath.Join(t.TempDir(), "none.so"),
		"file too short":            broken,
		"driver is too old or brok": standin(t, "-DINCOMPLETE"),
		"finds no GPU":              standin(t, "-DDEVICES=0"),
		"11.4 is needed":            standin(t, "-DVERSION=10020"),
		"cannot map host memory":    standin(t, "-DMAPS=0"),
	} {
		_, err := Open(Config{Backend: "cuda", library: library})
		if !errors.Is(err, ErrNoCUDA) || !errors.Is(err, ErrBackend) || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", reason, err)
		}
		var log strings.Builder
		a, err := Open(Config{library: library, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil || a.Backend() != "host" || !strings.Contains(log.String(), reason) {
			t.Errorf("%s: auto chose %v, %v, and said %q", reason, a, err, log.String())
		}
	}
	t.Setenv("STANDIN_NO_INIT", "1")
	_, err := Open(Config{Backend: "cuda", library: standin(t)})
	if e := (*Error)(nil); !errors.As(err, &e) || e.Call != "cuInit" || e.Code != 100 || e.Name != "CUDA_ERROR_STANDIN" || e.Meaning != "as the stand-in says" {
		t.Errorf("cuInit fails: %v", err)
	}
}

// TestTry checks what Try reports about memory, and each error on the way to it.
func TestTry(t *testing.T) {
	for access, defines := range map[string][]string{"the CPU's address": nil, "an address of their own": {"-DUNIFIED=0"}} {
		if about, err := try(standin(t, defines...)); err != nil || !strings.Contains(about, "stand-in, compute capability 8.7") || !strings.Contains(about, access) {
			t.Errorf("%q, %v, want %s", about, err, access)
		}
	}
	var e *Error
	if _, err := try(standin(t, "-DNO_SYNC=1")); !errors.As(err, &e) || e.Call != "cuPointerSetAttribute" {
		t.Errorf("without SYNC_MEMOPS: %v", err)
	}
	t.Setenv("STANDIN_LOST", os.Args[0])
	if _, err := try(standin(t)); !errors.As(err, &e) || e.Call != "cuMemHostAlloc" {
		t.Errorf("without memory: %v", err)
	}
	t.Setenv("STANDIN_NO_INIT", "1")
	if _, err := try(standin(t)); !errors.As(err, &e) || e.Call != "cuInit" {
		t.Errorf("without cuInit: %v", err)
	}
}

func TestCallsOfTheDriver(t *testing.T) {
	for name, defines := range map[string][]string{"unified": nil, "not unified": {"-DUNIFIED=0"}} {
		c := openStandin(t, defines...)
		if want := "stand-in, compute capability 8.7, CUDA 12.2"; c.Device.String() != want || c.Device.GPUDirectRDMA {
			t.Errorf("%s: %v, want %s", name, c.Device, want)
		}
		b, err := c.AllocHost(4097*4, Mapped)
		if err != nil {
			t.Fatal(err)
		}
		want := b.Addr()
		if name == "not unified" {
			want += 1 << 40
		}
		if b.DevicePointer() != want || b.id == 0 {
			t.Errorf("%s: device pointer %#x of %#x, id %d", name, b.DevicePointer(), b.Addr(), b.id)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		var e *Error
		if _, err := c.AllocHost(1<<31, Default); !errors.As(err, &e) || e.Call != "cuMemHostAlloc" || e.Code != 2 || e.Sticky() {
			t.Errorf("too much: %v", err)
		}
		if _, err := c.AllocHost(2*4096, Default); !errors.As(err, &e) || e.Call != "cuPointerSetAttribute" {
			t.Errorf("without SYNC_MEMOPS: %v", err)
		}
	}
}

func TestLaunchPassesWhatItIsGiven(t *testing.T) {
	c := openStandin(t)
	m, err := c.Device.Load([]byte("code"))
	if err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := m.Kernel("absent"); !errors.As(err, &e) || e.Code != 500 || !strings.Contains(err.Error(), "absent") {
		t.Errorf("%v", err)
	}
	k, err := m.Kernel("there")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	first, second := uintptr(1), int32(77)
	if err := k.Launch(s, Dim{X: 4, Y: 3}, Dim{X: 32}, unsafe.Pointer(&first), unsafe.Pointer(&second)); err != nil {
		t.Error(err)
	}
	second = 78
	if err := k.Launch(s, Dim{X: 4, Y: 3}, Dim{X: 32}, unsafe.Pointer(&first), unsafe.Pointer(&second)); !errors.As(err, &e) {
		t.Errorf("%v", err)
	}
	t.Setenv("STANDIN_FAULT", "1")
	if f, err := s.Fence(); err != nil {
		t.Error(err)
	} else if err := f.Wait(t.Context()); !errors.As(err, &e) || !e.Sticky() {
		t.Errorf("a kernel's fault: %v", err)
	}
	if err := errors.Join(s.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if _, err := c.Device.newCompiler("", []string{"libno-such-nvrtc.so"}); !errors.Is(err, ErrNoCUDA) || !strings.Contains(err.Error(), "libnvrtc") {
		t.Errorf("no compiler: %v", err)
	}
}

func TestInspectTellsManagedMemory(t *testing.T) {
	c := openStandin(t)
	t.Setenv("STANDIN_MANAGED", "1")
	for page := range uintptr(4) { // in the stand-in, every other page is managed
		info, err := c.Inspect(page * pageSize)
		if err != nil || info.Managed != (page%2 == 1) || info.Start != page*pageSize || !info.Host {
			t.Errorf("page %d: %+v, %v", page, info, err)
		}
	}
}

func TestAStreamCallsAFunction(t *testing.T) {
	c := openStandin(t)
	s, err := c.Device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	for range 3000 { // more than the number of callbacks available
		if err := s.Call(func() { called++ }); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.Device.driver.back.waiting); called != 3000 || n != 0 {
		t.Errorf("%d calls, and %d that are waited for", called, n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
