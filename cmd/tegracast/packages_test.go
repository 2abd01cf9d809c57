// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// packages makes the Debian packages of a version, for one architecture, in a folder.
func packages(t *testing.T, dir, version, arch string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "-C", "../../systemd/deb", "run", ".", "--root", "../..", "--out", dir, "--version", version, "--arch", arch)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("packages: %v\n%s", err, out)
	}
}

// TestPackagesAreReproducible makes the packages twice, and compares every byte.
func TestPackagesAreReproducible(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	packages(t, first, "1.0.0", "amd64")
	unit := "../../systemd/tegracast.service"
	if text, err := os.ReadFile(unit); err != nil || os.WriteFile(unit, text, 0o644) != nil { // another time of change
		t.Fatal(err)
	}
	packages(t, second, "1.0.0", "amd64")
	files, err := filepath.Glob(filepath.Join(first, "*.deb"))
	if err != nil || len(files) != 2 {
		t.Fatalf("packages: %q %v", files, err)
	}
	for _, f := range files {
		a, errA := os.ReadFile(f)
		b, errB := os.ReadFile(filepath.Join(second, filepath.Base(f)))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v %v", filepath.Base(f), errA, errB)
		}
	}
}
