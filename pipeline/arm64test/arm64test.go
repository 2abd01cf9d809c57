// SPDX-License-Identifier: Apache-2.0

package arm64test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Run runs, on an emulated processor, those tests of the package in the current folder that match the pattern. It uses
// the libraries of the cross compiler.
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
