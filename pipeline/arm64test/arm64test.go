// SPDX-License-Identifier: Apache-2.0

// Package arm64test runs tests of assembly for arm64 in an emulated processor.
package arm64test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Run runs those tests of the package in this folder that match the pattern. Libraries are those of the cross compiler.
func Run(t *testing.T, pattern string) {
	t.Helper()
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Fatal("this test needs qemu-aarch64: apt-get install qemu-user gcc-aarch64-linux-gnu")
	}
	binary := filepath.Join(t.TempDir(), "arm64.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(qemu, "-L", "/usr/aarch64-linux-gnu", binary, "-test.run", pattern).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
