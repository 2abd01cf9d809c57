// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
)

// long skips, unless make test-long runs, tests with thousands of steps, repetitions, or a duration of a minute.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
}

// TestKernels runs the tests of TestModule, which uses 6.1, and the program on the other kernels.
func TestKernels(t *testing.T) {
	long(t)
	for _, arch := range []string{"arm64", "amd64"} {
		for _, series := range []string{"5.10", "6.12"} {
			t.Run(series+" "+arch, func(t *testing.T) {
				k, err := vjetson.FetchSeries(t.Context(), arch, series, slog.Default())
				if err != nil {
					t.Fatal(err)
				}
				b := buildFor(t, k, t.TempDir())
				if arch == "amd64" && series == "5.10" {
					refused(t, b)
					return
				}
				for name, w := range b.ways() {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						testWay(t, b, w, "")
					})
					t.Run(name+" attacks", func(t *testing.T) {
						t.Parallel()
						m := b.start(t, w, vjetson.Config{Edu: true, Memory: 640, Modules: []string{"fuse"}})
						m.guest(t, "^Test(Quiet|Restless|StalledFuse|StarvedChecks|Owner|CloseAgainstDiscard|WorkersAgainstDiscard)$")
						if w.provider == "" && series != "5.10" { // 5.10 reads such pages with mmap_lock held
							m.guest(t, "^TestPinAgainstDroppedFile$")
						}
						m.changes(t)
						m.discards(t, w)
					})
				}
				t.Run("loopback", func(t *testing.T) {
					t.Parallel()
					testLoopback(t, b)
				})
			})
		}
	}
}

// refused loads the module on a kernel that cannot report whether its IOMMU drops mappings at once (Intel's driver,
// before 5.12).
func refused(t *testing.T, b built) {
	t.Helper()
	m := b.start(t, b.gup, vjetson.Config{Edu: true})
	why, err := m.Expect(`no strict IOMMU of its own`)
	if err != nil {
		t.Fatal(err)
	}
	m.shell("if (exec 3<>/dev/tegra_p2p0) 2>/dev/null; then exit 1; fi")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := why.Wait(ctx); err != nil {
		t.Error(err)
	}
}

// TestConvertedSRCU runs the tests of nv-p2p with SRCU callbacks that wait for the processor that queued them, as in
// 5.10, and in newer kernels with many processors or under contention.
func TestConvertedSRCU(t *testing.T) {
	long(t)
	b := build(t, "arm64")
	testWay(t, b, b.nvp2p, callbacksPerCPU)
}

// testLoopback runs the program's loopback through edu's memory with both ways of pinning.
func testLoopback(t *testing.T, b built) {
	for name, w := range b.ways() {
		t.Run(name, func(t *testing.T) {
			b.start(t, w, vjetson.Config{Edu: true}).loopback(t)
		})
	}
}

// loopback runs the program's loopback through edu's memory.
func (m machine) loopback(t *testing.T) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tegracast")
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/tegracast/tegracast/cmd/tegracast")
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+m.Kernel().Arch, "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v: %s", err, out)
	}
	if err := m.CopyIn(t.Context(), program, "/tmp/tegracast"); err != nil {
		t.Fatal(err)
	}
	const size = 64 << 10
	out := m.shell(fmt.Sprintf("/tmp/tegracast loopback --device /dev/tegra_p2p0 --size %d --count 1 --json", size))
	var result struct {
		Copies, Wrong uint64
		Directions    []struct{ Bytes uint64 }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if result.Copies != 1 || result.Wrong != 0 || len(result.Directions) != 2 || result.Directions[0].Bytes != size || result.Directions[1].Bytes != size {
		t.Errorf("%s", out)
	}
}
