// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() { roles["owner"] = own }

// own opens the device and keeps it open.
func own() {
	_, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(err)
	fmt.Println("open")
	time.Sleep(time.Hour)
}

// TestOwner lets nobody own the device. Root and others are refused, and learn the owner. A process with all rights may
// request sharing.
func TestOwner(t *testing.T) {
	if err := os.Chmod(devicePath, 0o666); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(devicePath, 0o600) }()
	as := func(uid uint32) (first string, c *exec.Cmd) {
		t.Helper()
		c = exec.Command("/guest.test")
		c.Env = []string{"GUEST_ROLE=owner", "GUEST_DEVICE=" + devicePath}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
		b := make([]byte, 100)
		n, _ := out.Read(b)
		return string(bytes.TrimSpace(b[:n])), c
	}
	said, c := as(65534)
	owners := func() string {
		b, err := os.ReadFile("/sys/class/tegra_p2p/" + filepath.Base(devicePath) + "/owners")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if want := fmt.Sprintf("%d 65534\n", c.Process.Pid); said != "open" || owners() != want {
		t.Fatalf("%s; owners %q, want %q", said, owners(), want)
	}
	_, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	wantErrno(t, "root's open", err, unix.EBUSY)
	if said, _ := as(1000); said != unix.EBUSY.Error() {
		t.Errorf("another user's open: %s", said)
	}
	said, again := as(65534)
	if said != "open" {
		t.Errorf("the owner's second open: %s", said)
	}
	reads, err := unix.Open(devicePath, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	wantErrno(t, "root's open to read", err, 0)
	shares, errShares := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	wantErrno(t, "root's open to share", errShares, 0)
	if got := owners(); strings.Count(got, "\n") != 3 || !strings.HasSuffix(got, fmt.Sprintf("%d 0\n", os.Getpid())) {
		t.Errorf("owners %q", got)
	}
	for _, c := range []*exec.Cmd{c, again} {
		_, _ = c.Process.Kill(), c.Wait()
	}
	if said, _ := as(65534); said != unix.EBUSY.Error() {
		t.Errorf("open by the user who was the owner, while root alone has the device: %s", said)
	}
	second, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	wantErrno(t, "root's second open", err, 0)
	if err := cmp.Or(unix.Close(reads), unix.Close(shares), unix.Close(second)); err != nil {
		t.Error(err)
	}
}

// TestDeviceFile checks that an open does not wait for another device's: opens may wait for a reset of the function, so
// they must not be serialised like those of miscellaneous devices.
func TestDeviceFile(t *testing.T) {
	var st unix.Stat_t
	if err := unix.Stat(devicePath, &st); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/devices")
	if err != nil {
		t.Fatal(err)
	}
	if line := fmt.Sprintf("%3d tegra_p2p\n", unix.Major(st.Rdev)); !strings.Contains(string(b), line) || st.Mode&0o777 != 0o600 {
		t.Errorf("mode %o, major %d; %s", st.Mode, unix.Major(st.Rdev), b)
	}
}
