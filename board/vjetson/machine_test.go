// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestMachine(t *testing.T) {
	m := StartTest(t, Config{Modules: []string{"vivid"}, Files: map[string]string{"/usr/bin/cameratests": BuildTests(t, "arm64", "../../capture")}})
	ctx := t.Context()

	t.Run("command", func(t *testing.T) {
		r, err := m.Run(ctx, "sh", "-c", "uname -mr; echo why >&2; exit 7")
		want := m.Kernel().Release + " aarch64\n"
		if err != nil || string(r.Stdout) != want || string(r.Stderr) != "why\n" || r.Status != 7 {
			t.Errorf("%+v %v", r, err)
		}
		if r, err := m.Run(ctx, "sh", "-c", "kill -SEGV $$"); err != nil || r.Status != 128+11 {
			t.Errorf("after a signal: %+v %v", r, err)
		}
		if _, err := m.Run(ctx, "no-such-command"); err == nil || !strings.Contains(err.Error(), "no-such-command") {
			t.Errorf("a command that is not there: %v", err)
		}
		if _, err := m.Shell(ctx, "ls /no-such-file"); err == nil || !strings.Contains(err.Error(), "No such file") {
			t.Errorf("a command that fails: %v", err)
		}
	})
	t.Run("devices", func(t *testing.T) {
		out, err := m.Shell(ctx, "cat /sys/class/video4linux/video0/name; ls /dev/gpiochip0 /dev/video0; cat /sys/bus/gpio/devices/gpiochip0/of_node/compatible | tr '\\0' ' '")
		if want := "vivid-000-vid-cap\n/dev/gpiochip0\n/dev/video0\narm,pl061 arm,primecell "; err != nil || out != want {
			t.Errorf("%q %v, want %q", out, err, want)
		}
	})
	t.Run("cameras", func(t *testing.T) { runCameraTests(t, m, 12) })
	t.Run("files", func(t *testing.T) { copyBothWays(t, m) })
	t.Run("full disk", func(t *testing.T) { fullDisk(t, m) })
	t.Run("command that takes too long", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := m.Run(short, "sh", "-c", "sleep 1000 | cat"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHung) {
			t.Errorf("a command past its deadline: %v", err)
		}
		if out, err := m.Shell(ctx, "pgrep sleep || echo none"); err != nil || out != "none\n" {
			t.Errorf("what it left: %q %v", out, err)
		}
	})
	t.Run("kernel log", func(t *testing.T) {
		seen, err := m.Expect("WARNING: made by the test")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Shell(ctx, "echo 'WARNING: made by the test' > /dev/kmsg"); err != nil {
			t.Fatal(err)
		}
		if line, err := seen.Wait(ctx); err != nil || !strings.Contains(line, "made by the test") {
			t.Errorf("%q %v", line, err)
		}
		if first := m.KernelLog()[0]; !strings.Contains(first, "Booting Linux") {
			t.Errorf("the log begins with %q", first)
		}
	})
	t.Run("power off", func(t *testing.T) {
		if err := m.PowerOff(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Run(ctx, "true"); !errors.Is(err, ErrEnded) {
			t.Errorf("a command in a machine that is off: %v", err)
		}
	})
}

func fullDisk(t *testing.T, m *Machine) {
	ctx := t.Context()
	if _, err := m.Shell(ctx, "mkdir /tmp/small && mount -t tmpfs -o size=64k small /tmp/small"); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.CopyIn(ctx, big, "/tmp/small/big"); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("copying to a full disk: %v", err)
	}
	if out, err := m.Shell(ctx, "echo still here"); err != nil || out != "still here\n" {
		t.Errorf("after a full disk: %q %v", out, err)
	}
}

func copyBothWays(t *testing.T, m *Machine) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	want := bytes.Repeat([]byte("0123456789abcdef\n"), 200_000)
	if err := os.WriteFile(in, want, 0o751); err != nil {
		t.Fatal(err)
	}
	if err := m.CopyIn(t.Context(), in, "/tmp/file"); err != nil {
		t.Fatal(err)
	}
	if s, err := m.Shell(t.Context(), "stat -c '%a %s' /tmp/file"); err != nil || s != "751 3400000\n" {
		t.Errorf("inside: %q %v", s, err)
	}
	if err := m.CopyOut(t.Context(), "/tmp/file", out); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if err := m.CopyOut(t.Context(), "/no/such/file", out+"2"); err == nil {
		t.Error("copying out a file that is not there succeeded")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("left on the host: %q", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".vjetson*")); len(left) != 0 {
		t.Errorf("left on the host: %q", left)
	}
}

// traces holds the traces that machines could leave behind in this process and on this host.
type traces struct {
	fds, goroutines int
	children        string
	temporary       int
}

func findTraces(t *testing.T) traces {
	t.Helper()
	var s traces
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	starter() // this thread remains
	s.fds, s.goroutines = len(fds), runtime.NumGoroutine()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, l := range lists {
		b, _ := os.ReadFile(l) // the thread may have ended
		s.children += string(b)
	}
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "vjetson-*"))
	s.temporary = len(left)
	return s
}

// leavesNothing compares with before, and gives ending goroutines some time.
func leavesNothing(t *testing.T, before traces) {
	t.Helper()
	var now traces
	for range 1500 {
		now = findTraces(t)
		if now.fds <= before.fds && now.goroutines <= before.goroutines && now.temporary <= before.temporary && len(now.children) <= len(before.children) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("before: %+v\nafter:  %+v", before, now)
}

// TestBootsLeaveNothing boots three machines, or ten with TEGRACAST_LONG.
func TestBootsLeaveNothing(t *testing.T) {
	boots := 3
	if os.Getenv("TEGRACAST_LONG") != "" {
		boots = 10
	}
	t.Setenv("TMPDIR", t.TempDir())
	before := findTraces(t)
	for i := range boots {
		m, err := Start(t.Context(), Config{})
		if err != nil {
			t.Fatalf("boot %d: %v", i, err)
		}
		if i%2 == 0 { // regularly, and by killing QEMU
			err = m.PowerOff(t.Context())
		}
		if err = errors.Join(err, m.Close(), m.Close()); err != nil {
			t.Fatalf("boot %d: %v", i, err)
		}
	}
	leavesNothing(t, before)
}

func TestPanic(t *testing.T) {
	before := findTraces(t)
	m, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(t.Context(), "sh", "-c", "echo c > /proc/sysrq-trigger"); !errors.Is(err, ErrPanic) || !strings.Contains(err.Error(), "sysrq triggered crash") {
		t.Errorf("a panic under a command: %v", err)
	}
	if err := m.awaitEnd(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.Close(); !errors.Is(err, ErrPanic) {
		t.Errorf("Close after a panic: %v", err)
	}
	leavesNothing(t, before)
}

func TestPanicDuringBoot(t *testing.T) {
	before := findTraces(t)
	if _, err := Start(t.Context(), Config{Append: "rdinit=/no/such/init root=/dev/null rootwait=0"}); !errors.Is(err, ErrPanic) {
		t.Errorf("a root without init: %v", err)
	}
	leavesNothing(t, before)
}

func TestHungGuest(t *testing.T) {
	before := findTraces(t)
	m, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := m.Run(ctx, "true"); !errors.Is(err, ErrHung) || !strings.Contains(err.Error(), "the console said") {
		t.Errorf("a command in a hung machine: %v", err)
	}
	if err := m.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := m.Shell(t.Context(), "echo again"); err != nil || out != "again\n" {
		t.Errorf("after the hang: %q %v", out, err)
	}
	if err := m.PowerCut(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	leavesNothing(t, before)
}

func TestFaultFailsClose(t *testing.T) {
	m, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := m.Expect("the last line")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Shell(t.Context(), "echo 'BUG: made by the test' > /dev/kmsg; echo the last line > /dev/kmsg"); err != nil {
		t.Error(err)
	}
	if _, err := seen.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.Close(); !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), "BUG: made by the test") {
		t.Errorf("Close after a fault: %v", err)
	}
}

func TestEndedByItself(t *testing.T) {
	m, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = m.Run(t.Context(), "poweroff", "-f") // like a crashing guest
	if err := m.awaitEnd(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.Close(); !errors.Is(err, ErrEnded) {
		t.Errorf("Close after an end that nobody asked for: %v", err)
	}
}

func TestDoesNotStart(t *testing.T) {
	k, err := Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	before := findTraces(t)
	gone := k
	gone.Release = "0.0.0-0-arm64"
	for name, c := range map[string]struct {
		cfg  Config
		want error
		says string
	}{
		"no kernel":      {Config{Kernel: gone}, ErrMissing, "vmlinuz-0.0.0-0-arm64"},
		"no file":        {Config{Kernel: k, Files: map[string]string{"/x": "/no/such/file"}}, ErrMissing, "/no/such/file"},
		"no disk":        {Config{Kernel: k, Disk: "/no/such/disk"}, ErrMissing, "/no/such/disk"},
		"no module":      {Config{Kernel: k, Modules: []string{"no_such_module"}}, nil, "no_such_module"},
		"relative file":  {Config{Kernel: k, Files: map[string]string{"x": "/etc/passwd"}}, nil, "clean absolute path"},
		"little memory":  {Config{Kernel: k, Memory: 1}, nil, "1 MiB of memory"},
		"too many CPUs":  {Config{Kernel: k, CPUs: 9}, nil, "9 CPUs"},
		"two devices":    {Config{Kernel: k, Edu: true, Functions: []string{"/x"}}, nil, "IOMMU"},
		"slow boot":      {Config{Kernel: k, BootTimeout: 300 * time.Millisecond}, ErrBoot, "not within 300ms"},
		"negative bound": {Config{Kernel: k, BootTimeout: -1}, nil, "boot timeout"},
	} {
		_, err := Start(t.Context(), c.cfg)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.says)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ended, Config{Kernel: k}); err == nil {
		t.Errorf("under a context that has ended: %v", err)
	}
	leavesNothing(t, before)
}

func TestMissingTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), Config{}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "qemu-system-arm") {
		t.Errorf("without QEMU: %v", err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if _, err := Fetch(t.Context(), "arm64", slog.Default()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "install --no-install-recommends apt") {
		t.Errorf("without apt-get: %v", err)
	}
}

// BenchmarkBoot measures boot, a command, its exit status, the kernel log, and power off.
func BenchmarkBoot(b *testing.B) {
	for b.Loop() {
		m, err := Start(b.Context(), Config{})
		if err != nil {
			b.Fatal(err)
		}
		if r, err := m.Run(b.Context(), "sh", "-c", "exit 3"); err != nil || r.Status != 3 {
			b.Error(r, err)
		}
		if len(m.KernelLog()) == 0 {
			b.Error("no kernel log")
		}
		if err := errors.Join(m.PowerOff(b.Context()), m.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
