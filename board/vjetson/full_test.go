// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFull covers the full root: systemd starts, the journal can be read, the kernel paces packets, and a power cut loses
// nothing that was synced.
func TestFull(t *testing.T) {
	before := findTraces(t)
	t.Cleanup(func() { leavesNothing(t, before) })
	keys, keyboard, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer keyboard.Close()
	disk := filepath.Join(t.TempDir(), "disk")
	cfg := Config{Full: true, Disk: disk, Network: true, Keyboard: keys, Files: pacedFiles(t)}
	cfg.Files["/etc/motd"], cfg.Files["/usr/bin/gpiotests"] = "testdata/motd", BuildTests(t, "arm64", "../gpio")
	m := StartTest(t, cfg)
	ctx := t.Context()
	shell := func(m *Machine, line, want string) {
		t.Helper()
		if out, err := m.Shell(ctx, line); err != nil || out != want {
			t.Errorf("%s: %q %v, want %q", line, out, err, want)
		}
	}
	shell(m, "systemctl is-system-running; systemctl --failed --plain --no-legend", "running\n")
	shell(m, "readlink /proc/1/exe; cat /etc/motd", "/usr/lib/systemd/systemd\nthe virtual Jetson\n")
	shell(m, "ping -c 1 -q "+HostAddress+" | grep -c ' 0% packet loss'", "1\n")
	t.Run("modules", func(t *testing.T) {
		shell(m, "modprobe vivid && cat /sys/class/video4linux/video0/name", "vivid-000-vid-cap\n")
	})
	t.Run("GPIO", func(t *testing.T) { packageGPIO(t, m) })
	t.Run("console", func(t *testing.T) {
		typed, err := m.Expect(`^the answer is 42`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keyboard.WriteString("echo the answer is $((6 * 7))\r"); err != nil {
			t.Fatal(err)
		}
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if _, err := typed.Wait(bounded); err != nil {
			t.Error(err)
		}
	})
	t.Run("pacing", func(t *testing.T) { kernelPacing(t, m) })
	shell(m, "echo written before the cut | systemd-cat -t seed && journalctl --sync && "+
		"echo kept > /var/lib/kept && sync && journalctl -q -o cat -t seed", "written before the cut\n")
	if err := m.PowerCut(ctx); err != nil {
		t.Fatal(err)
	}

	cfg.Keyboard = nil
	again := StartTest(t, cfg)
	shell(again, "systemctl is-system-running; cat /var/lib/kept; journalctl -q -b -1 -o cat -t seed", "running\nkept\nwritten before the cut\n")
	if !strings.Contains(strings.Join(again.KernelLog(), "\n"), "EXT4-fs (vda): recovery complete") {
		t.Error("the file system was clean: the power was not cut")
	}
	if err := again.PowerOff(ctx); err != nil {
		t.Error(err)
	}
	if !strings.Contains(strings.Join(again.KernelLog(), "\n"), "poweroff.target") {
		t.Error("systemd did not shut down in order")
	}
}

// packageGPIO runs the tests of package gpio on the PL061 with 8 lines, and checks the lines with gpioinfo.
func packageGPIO(t *testing.T, m *Machine) {
	r, err := m.Run(t.Context(), "/usr/bin/gpiotests", "-inside", "-test.v", "-test.run", "TestOutput|TestErrors|TestCrash")
	if err != nil || r.Status != 0 || strings.Count(string(r.Stdout), "--- PASS") != 3 {
		t.Errorf("%v, status %d\n%s%s", err, r.Status, r.Stdout, r.Stderr)
	}
	// The power button's line is used by the kernel's gpio-keys, for logind.
	if out, err := m.Shell(t.Context(), "for d in /sys/bus/platform/drivers/gpio-keys/*keys*; do echo ${d##*/} > /sys/bus/platform/drivers/gpio-keys/unbind; done; "+
		"systemd-run -q --unit=edges gpiotests -inside -test.v -test.run TestEdges; "+
		"for i in $(seq 100); do gpioinfo gpiochip0 | grep -q 'line   3:.*pps' && exit 0; sleep .1; done; gpioinfo; exit 1"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for range 3 {
		if err := m.PressPowerButton(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	out, err := m.Shell(t.Context(), "for i in $(seq 300); do systemctl is-active -q edges || break; sleep .1; done; journalctl --sync; journalctl -q -u edges -o cat")
	if err != nil || !strings.Contains(out, "--- PASS: TestEdges") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFetchWithoutNetwork checks that a failure to fetch is a clear error within a time limit, and leaves nothing
// partial.
func TestFetchWithoutNetwork(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("http_proxy", "http://127.0.0.1:9") // the discard port, where nothing listens
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := Fetch(ctx, "arm64", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "is deb.debian.org within reach?") || ctx.Err() != nil {
		t.Errorf("fetching without a network: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "tegracast/vjetson/*-*")); len(left) != 1 || filepath.Base(left[0]) != "apt-arm64" {
		t.Errorf("left in the cache: %q", left)
	}
}
