// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func open(t *testing.T, cfg Config) Allocator {
	t.Helper()
	a, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBuffers(t *testing.T) {
	a := open(t, Config{Backend: "host"})
	ids := map[uint64]bool{}
	for _, size := range []int{1, 4095, 4096, 4097, 1 << 20} {
		for _, flags := range []Flags{Default, WriteCombined | Mapped, Portable} {
			b, err := a.AllocHost(size, flags)
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Bytes()) != size || b.Addr()%4096 != 0 || b.DevicePointer() != b.Addr() || b.Flags() != flags || ids[b.id] {
				t.Errorf("size %d: %d bytes at %#x, device %#x, flags %#x, id %d", size, len(b.Bytes()), b.Addr(), b.DevicePointer(), b.Flags(), b.id)
			}
			ids[b.id] = true
			if !bytes.Equal(b.Bytes(), make([]byte, size)) {
				t.Error("memory is not zeroed")
			}
			b.Bytes()[size-1] = 1
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := b.Close(); !errors.Is(err, ErrFreed) {
				t.Errorf("second Close: %v", err)
			}
			if b.Bytes() != nil {
				t.Error("Bytes after Close")
			}
		}
	}
}

// The page in front belongs to the same mapping, according to the kernel's list of mappings.
func TestLeadingPage(t *testing.T) {
	b, err := open(t, Config{Backend: "host"}).AllocHost(3*4096, Default)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		if from <= b.Addr() && b.Addr() < to {
			if from > b.Addr()-4096 || to < b.Addr()+3*4096 {
				t.Errorf("buffer at %#x lies in %#x-%#x", b.Addr(), from, to)
			}
			return
		}
	}
	t.Error("the buffer is not mapped")
}

// rerun runs one test of this program again, in a separate process.
func rerun(t *testing.T, test string, env ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	return cmd.CombinedOutput()
}

type order struct {
	addr uintptr
	size int
}

func (o *order) Invalidate(addr uintptr, size int) {
	o.addr, o.size = addr, size
}

func TestCloseCutsDevicesOffFirst(t *testing.T) {
	var o order
	b, err := open(t, Config{Backend: "host", Invalidator: &o}).AllocHost(5000, Default)
	if err != nil {
		t.Fatal(err)
	}
	addr := b.Addr()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if o.addr != addr || o.size != 5000 {
		t.Errorf("invalidated %#x, %d bytes, want %#x, 5000", o.addr, o.size, addr)
	}
}

func TestRefusals(t *testing.T) {
	var log bytes.Buffer
	a := open(t, Config{library: "libno-such-cuda.so", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if a.Backend() != "host" || !strings.Contains(log.String(), "reason=") {
		t.Errorf("auto chose %s and said %q", a.Backend(), log.String())
	}
	for _, size := range []int{0, -1, 1 << 50} {
		if _, err := a.AllocHost(size, Default); !errors.Is(err, ErrSize) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	if _, err := a.AllocHost(4096, 1<<9); !errors.Is(err, ErrFlags) {
		t.Errorf("flags: %v", err)
	}
	for _, name := range []string{"cuda", "opencl"} {
		if _, err := Open(Config{Backend: name, library: "libno-such-cuda.so"}); !errors.Is(err, ErrBackend) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An unprivileged process with a small limit gets its memory, and a single message that names the remedy, even with two
// allocators.
func TestLockLimit(t *testing.T) {
	if os.Getenv("TEGRACAST_TEST_LIMIT") != "" {
		log := slog.New(slog.NewTextHandler(os.Stdout, nil))
		a := open(t, Config{Backend: "host", Logger: log})
		b := open(t, Config{Backend: "host", Logger: log, Beside: a})
		for _, from := range []Allocator{b, a, a} {
			if _, err := from.AllocHost(1<<20, Default); err != nil {
				t.Error(err)
			}
		}
		return
	}
	cmd := exec.Command("sh", "-c", `ulimit -l 64; exec "$0" -test.run=TestLockLimit -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "TEGRACAST_TEST_LIMIT=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		exe := t.TempDir() + "/cudahost.test"
		b, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(exe, b, 0o755); err != nil {
			t.Fatal(err)
		}
		for d := exe; len(d) > len(os.TempDir()); d = d[:strings.LastIndexByte(d, '/')] {
			_ = os.Chmod(d, 0o755)
		}
		cmd.Args[3], cmd.Dir = exe, os.TempDir()
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "LimitMEMLOCK="); n != 1 || strings.Contains(string(out), "level=WARN") {
		t.Errorf("the message came %d times, want once and as no warning:\n%s", n, out)
	}
}
