// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// newRoot is the folder at which the disk's root is mounted. It exists only if the initramfs is to switch to that root.
const newRoot = "/newroot"

// prepareRoot turns the initramfs into a running system, or switches to the root on the disk and does not return.
func prepareRoot() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
		{"debugfs", "/sys/kernel/debug"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.Setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin"); err != nil {
		return err
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	if _, err := os.Stat(newRoot); err == nil {
		return switchRoot()
	}
	if out, err := exec.Command("/bin/busybox", "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("busybox --install: %w: %s", err, out)
	}
	if out, err := exec.Command("/bin/ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("loopback interface: %w: %s", err, out)
	}
	return nil
}

// switchRoot mounts the disk, copies the files in /files to it, and starts its init. The new
// system runs this program again, as a service.
func switchRoot() error {
	const disk = "/dev/vda"
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(disk); err == nil {
			break
		} else if time.Now().After(deadline) {
			return err
		}
	}
	if err := unix.Mount(disk, newRoot, "ext4", 0, "errors=remount-ro"); err != nil {
		return fmt.Errorf("mount %s: %w", disk, err)
	}
	for _, argv := range [][]string{
		{"cp", "-a", "/files/.", newRoot + "/"},
		{"mkdir", "/run/vjetson"},
		{"cp", "/init", "/run/vjetson/agent"},
		{"umount", "/tmp"},
	} {
		if out, err := exec.Command("/bin/busybox", argv...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", argv, err, out)
		}
	}
	for _, at := range []string{"/dev", "/proc", "/sys", "/run"} {
		if err := unix.Mount(at, newRoot+at, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", at, err)
		}
	}
	return unix.Exec("/bin/busybox", []string{"switch_root", newRoot, "/sbin/init"}, os.Environ())
}

// loadModules loads the modules whose paths are in the file list, one per line, in this order.
func loadModules(list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if err := loadModule(strings.TrimSpace(s.Text())); err != nil {
			return err
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("module %s: %w", path, err)
	}
	return nil
}

func powerOff() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
