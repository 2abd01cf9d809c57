// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
)

// kfuzzDuration returns how long each back end is attacked.
func kfuzzDuration() time.Duration {
	switch {
	case sanitized():
		return time.Hour
	case os.Getenv("TEGRACAST_LONG") != "":
		return 10 * time.Minute
	}
	return 30 * time.Second
}

// callbacksPerCPU makes SRCU queue callbacks as in kernels before 5.19, including those of Jetson Linux.
const callbacksPerCPU = "srcutree.convert_to_big=1"

// TestKfuzz attacks the module at random, with both back ends. $KFUZZ_SEED repeats a run, as far as threads permit.
func TestKfuzz(t *testing.T) {
	b := build(t, "arm64")
	kfuzz := buildProgram(t, "./kfuzz")
	for name, c := range map[string]struct {
		way        way
		parameters string
	}{
		"gup":                       {b.gup, ""},
		"nvp2p":                     {b.nvp2p, ""},
		"nvp2p, callbacks of a CPU": {b.nvp2p, callbacksPerCPU},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.parameters != "" {
				long(t)
			}
			m := b.start(t, c.way, vjetson.Config{Edu: true, Memory: 768, Append: c.parameters, Files: map[string]string{"/kfuzz": kfuzz}})
			if c.parameters != "" {
				m.guest(t, "^TestSRCU$")
			}
			if sanitized() { // its checks have their own memory, and cope with less
				if _, err := m.Expect(shortOfMemory); err != nil {
					t.Fatal(err)
				}
			}
			m.kfuzz(t)
			m.t = t
			m.shell("rmmod tegra_p2p")
		})
	}
}

// buildProgram compiles the program that runs in the machine.
func buildProgram(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, dir)
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", dir, err, text)
	}
	return out
}

// kfuzz runs the program. If it still runs long after its end, it hangs, and the kernel logs where.
func (m machine) kfuzz(t *testing.T) {
	t.Helper()
	d := kfuzzDuration()
	ctx, cancel := context.WithTimeout(t.Context(), d+guestLimit())
	defer cancel()
	env := "GUEST=1 KFUZZ_DURATION=" + d.String() + " KFUZZ_SEED=" + os.Getenv("KFUZZ_SEED")
	if sanitized() {
		env += " GUEST_SLOW=1"
	}
	r, err := m.Run(ctx, "sh", "-c", env+" exec /guest.test -test.v -test.run '^TestKfuzz$'")
	if err == nil && r.Status == 0 {
		t.Logf("%s", r.Stdout)
		return
	}
	t.Errorf("%v, status %d:\n%s%s", err, r.Status, r.Stdout, r.Stderr)
	if ctx.Err() == nil {
		return
	}
	said := len(m.KernelLog())
	if _, err := m.Shell(t.Context(), "echo w > /proc/sysrq-trigger; sleep 2"); err != nil {
		t.Log(err)
	}
	t.Log(strings.Join(m.KernelLog()[said:], "\n"))
}
