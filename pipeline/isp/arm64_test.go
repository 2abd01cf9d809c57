// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package isp

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestKernelTwinsOnARM64 runs the tests of kernels with the kernels for NEON in an emulated processor.
func TestKernelTwinsOnARM64(t *testing.T) {
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Fatal("this test needs qemu-aarch64: apt-get install qemu-user")
	}
	binary := filepath.Join(t.TempDir(), "isp.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tests := "^(TestKernelTwins|TestColumnsTwins|TestShortWayAgainstReference|TestRealCapture|TestBands)$"
	if out, err := exec.Command(qemu, binary, "-test.run", tests).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
