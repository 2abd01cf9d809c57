// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPowerCut: what was synced is there after the power was taken away, and the file system recovers.
func TestPowerCut(t *testing.T) {
	if err := needTools(map[string]string{"/sbin/mkfs.ext4": "e2fsprogs"}); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/sbin/mkfs.ext4", "-q", disk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m := StartTest(t, Config{Disk: disk})
	line := "mkdir -p /mnt && mount -t ext4 /dev/vda /mnt && echo synced > /mnt/synced && sync && echo lost > /mnt/unsynced"
	if _, err := m.Shell(t.Context(), line); err != nil {
		t.Fatal(err)
	}
	if err := m.PowerCut(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := StartTest(t, Config{Disk: disk})
	out, err := again.Shell(t.Context(), "mkdir -p /mnt && mount -t ext4 /dev/vda /mnt && cat /mnt/synced && dd if=/dev/zero of=/mnt/full bs=1M; df /mnt | tail -1")
	if err != nil || !strings.HasPrefix(out, "synced\n") || !strings.Contains(out, "100%") {
		t.Errorf("after the power cut: %q %v", out, err)
	}
	recovered := strings.Contains(strings.Join(again.KernelLog(), "\n"), "EXT4-fs (vda): recovery complete")
	if !recovered {
		t.Error("the file system was clean: the power was not cut")
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := again.CopyIn(t.Context(), big, "/mnt/big"); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("copying to a full disk: %v", err)
	}
}
