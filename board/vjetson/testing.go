// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildTests compiles the tests of the package in a folder for machines of an architecture, and returns the program's path.
func BuildTests(t testing.TB, arch, folder string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tests")
	c := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", program, folder)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("the tests of %s: %v: %s", folder, err, out)
	}
	return program
}

// StartTest boots a machine for a test, and closes it at the test's end. The test fails if the machine cannot be started,
// or if there is an unexpected kernel fault, which it shows. A machine with functions needs more packages from Debian's
// archive: if these are not in the cache and the archive cannot be reached, the test is skipped.
func StartTest(t testing.TB, cfg Config) *Machine {
	t.Helper()
	cfg.temporary = true
	m, err := Start(t.Context(), cfg)
	if errors.Is(err, ErrUnreachable) && len(cfg.Functions) > 0 {
		t.Skipf("NEEDS a newer QEMU and the source of the kernel, each once, from Debian's archive: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Functions) > 0 {
		t.Log("QEMU", m.cfg.qemuVersion)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
			t.Log(m.log.aroundFaults())
		}
	})
	return m
}
