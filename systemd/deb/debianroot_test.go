// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
)

// A debianRoot is a folder with a Debian of an architecture, which does not run. qemu is the QEMU that runs programs of
// another architecture.
type debianRoot struct{ dir, arch, qemu string }

// needsLong skips a test that make test-long runs as root.
func needsLong(t *testing.T) {
	t.Helper()
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	if os.Getuid() != 0 {
		t.Skip("NEEDS root: it makes a Debian in a folder")
	}
}

// debian unpacks a suite of Debian with packages into a folder. It is made once, in the user's cache, as NAME-ARCH.tar.
// qemu runs mmdebstrap's programs, and the Debian's.
func debian(t *testing.T, name, suite, arch, packages, qemu string) debianRoot {
	t.Helper()
	needsLong(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(cache, "tegracast", name+"-"+arch+".tar")
	if _, err := os.Stat(image); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
			t.Fatal(err)
		}
		made := filepath.Join(t.TempDir(), "debian.tar")
		line := "mmdebstrap --quiet --mode=root --skip=check/qemu --variant=apt --arch=" + arch + " --include=" + packages + " " + suite + " " + made
		if suite == "bullseye" { // the lists of its security updates name packages of arm64 that the archive does not have
			line += " 'deb http://deb.debian.org/debian bullseye main'"
		}
		c := (debianRoot{"/", arch, qemu}).inside(t, line)
		c.Env = append(os.Environ(), c.Env...) // this machine's proxies
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		text(t, ".", "mv", made, image)
	}
	root := t.TempDir()
	text(t, ".", "tar", "-C", root, "--exclude=./dev/*", "-xf", image)
	text(t, root+"/dev", "sh", "-c", "touch null zero full random urandom; ln -s /proc/self/fd fd; mkdir shm") // the machine's own are mounted there
	return debianRoot{root, arch, qemu}
}

// ownQEMU is the QEMU of this machine.
const ownQEMU = "/usr/bin/qemu-aarch64-static"

// foreign describes programs of arm64 to the kernel, which then starts them by the QEMU whose path follows (binfmt_misc).
const foreign = `:qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:` +
	`\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:`

// inside returns a command that runs a line of the shell in the Debian, as root, with this machine's network.
func (r debianRoot) inside(t *testing.T, line string) *exec.Cmd {
	t.Helper()
	return r.command(t, line, "")
}

// alone returns a command that runs a line of the shell in the Debian, as root. Its network is a loopback, which /sys
// shows, with a hierarchy of control groups.
func (r debianRoot) alone(t *testing.T, line string) *exec.Cmd {
	t.Helper()
	const loopback = `ip link set lo up; mount -t sysfs sysfs "$0/sys"; mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup"` + "\n"
	return r.command(t, line, loopback, "--net", "--cgroup")
}

// command returns a command that runs a line of the shell in the Debian, after a script of this machine's, in namespaces
// for mounts and processes, and those of further options of unshare(1).
func (r debianRoot) command(t *testing.T, line, before string, options ...string) *exec.Cmd {
	t.Helper()
	const (
		enter = `set -e
mount --make-rprivate /
if [ -n "$FOREIGN" ]; then
	mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
	printf %s "$FOREIGN" >/proc/sys/fs/binfmt_misc/register
	unset FOREIGN
fi
exec unshare --mount --pid --fork --kill-child "$@"`
		mounts = `set -e
mount -t proc proc "$0/proc"
for f in null zero full random urandom; do mount --bind /dev/$f "$0/dev/$f"; done
`
	)
	args := slices.Concat([]string{"-c", enter, "sh"}, options, []string{"sh", "-c", mounts + before + `exec chroot "$0" sh -c "$1"`, r.dir, line})
	c := exec.CommandContext(t.Context(), "sh", args...)
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "INITRD=No"}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if r.arch != runtime.GOARCH { // a user namespace has a list of its own of such programs, since Linux 6.7
		all := []syscall.SysProcIDMap{{Size: 1 << 16}}
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER, UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true,
		}
		c.Env = append(c.Env, "FOREIGN="+foreign+r.qemu+":OCF")
	}
	return c
}
