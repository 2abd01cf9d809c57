// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPowerCut checks that synced data survive a power cut, and that the file system recovers. A part of the data in the
// disk's cache is lost.
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
	m := StartTest(t, Config{Disk: disk, DiskCache: true})
	const size = 8 << 20 // bytes written past the machine's own cache, and not flushed
	line := "mkdir -p /mnt && mount -t ext4 -o commit=300 /dev/vda /mnt && dd if=/dev/zero of=/mnt/direct bs=1M count=8 && echo synced > /mnt/synced && sync && " +
		`echo lost > /mnt/unsynced && tr '\0' x </dev/zero | dd of=/mnt/direct bs=1M count=8 iflag=fullblock oflag=direct conv=notrunc`
	if out, err := m.Shell(t.Context(), line); err != nil {
		t.Fatal(out, err)
	}
	if err := m.PowerCut(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := StartTest(t, Config{Disk: disk})
	out, err := again.Shell(t.Context(), "mkdir -p /mnt && mount -t ext4 /dev/vda /mnt && tr -cd x </mnt/direct | wc -c")
	lost, kept := m.CacheLost()
	var there int
	if _, scanned := fmt.Sscan(out, &there); err != nil || scanned != nil || there%sectorSize != 0 || lost+kept < size/sectorSize ||
		there/sectorSize > kept || there/sectorSize < size/sectorSize-lost {
		t.Errorf("the disk lost %d sectors and kept %d: %q %v", lost, kept, out, err)
	}
	t.Logf("the disk lost %d sectors and kept %d: of the file there are %d", lost, kept, there/sectorSize)
	out, err = again.Shell(t.Context(), "cat /mnt/synced; cat /mnt/unsynced 2>/dev/null; dd if=/dev/zero of=/mnt/full bs=1M; df /mnt | tail -1")
	if !strings.HasPrefix(out, "synced\n") || strings.HasPrefix(out, "synced\nlost") || !strings.Contains(out, "100%") {
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
