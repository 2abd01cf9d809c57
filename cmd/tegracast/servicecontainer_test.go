// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// A container is a Debian in a folder that runs systemd.
type container struct{ pid string }

// boot starts systemd of the Debian in the folder $1, in its own namespaces and the control group $2.
const boot = `set -e
cd "$1"
echo 0 > "$2/cgroup.procs"
mount --make-rprivate / && mount --bind . . && cd .
mount -t proc proc proc && mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mount -t tmpfs tmpfs run && mount -t tmpfs tmpfs tmp
exec unshare --cgroup sh -ec 'mount -t cgroup2 cgroup2 sys/fs/cgroup; cd .; pivot_root . mnt
	exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "umount -l /mnt; exec /lib/systemd/systemd --show-status=no"'
`

// debianRoot unpacks a Debian with systemd into a folder. It is made once, in the user's cache.
func debianRoot(t *testing.T, release, suite string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	image, made, root := filepath.Join(cache, "tegracast", "debian"+release+"-"+runtime.GOARCH+".tar"), filepath.Join(t.TempDir(), "debian.tar"), t.TempDir()
	for _, c := range []string{
		`[ -e "$1" ] || { mkdir -p "${1%/*}" && mmdebstrap --quiet --variant=apt --include=systemd,udev "$3" "$2" && mv "$2" "$1"; }`,
		`tar -C "$4" --exclude './dev/*' -xf "$1"`,
	} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", c, "sh", image, made, suite, root).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
	return root
}

// startContainer boots the Debian in a folder, with a network of its own.
func startContainer(t *testing.T, root string) container {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `group=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)$(sed -n s/^0:://p /proc/self/cgroup)/tegracast-test-$$
mkdir "$group" && echo "$group"`).Output()
	if err != nil {
		t.Skip("NEEDS a writable hierarchy of control groups, version 2, in which systemd runs: ", err)
	}
	group := strings.TrimSpace(string(out))
	t.Cleanup(func() { // the groups become empty soon after systemd was killed
		const remove = `for i in $(seq 300); do find "$0" -depth -type d -exec rmdir {} + 2>/dev/null; [ -d "$0" ] || exit 0; sleep .1; done; exit 1`
		if err := exec.Command("sh", "-c", remove, group).Run(); err != nil {
			t.Errorf("%s is not empty: %v", group, err)
		}
	})
	p := programtest.Start(t, "unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--kill-child", "sh", "-c", boot, "sh", root, group)
	c := container{}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		id := p.Process.Pid
		child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", id))
		if c.pid = strings.TrimSpace(string(child)); err != nil || c.pid == "" {
			continue
		}
		if state, _ := c.Shell(t.Context(), "systemctl is-system-running"); state == "running\n" || state == "degraded\n" {
			return c
		}
	}
	t.Fatalf("systemd does not start\n%s", p.Err.String())
	return c
}

// Shell runs a line in the container and returns its output.
func (c container) Shell(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	x := exec.CommandContext(ctx, "nsenter", "--target", c.pid, "--all", "sh", "-c", "cd /; "+line)
	x.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	var said bytes.Buffer
	x.Stderr = &said
	out, err := x.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &said)
	}
	return string(out), err
}

// TestReloadsBySystemd reloads the installed service in Debian 12, whose systemd lacks Type=notify-reload, and in Debian
// 13, whose systemd has it. There the service also follows the protocol of that type, which an administrator may set.
func TestReloadsBySystemd(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	if os.Getuid() != 0 {
		t.Skip("NEEDS root: it runs systemd in a folder")
	}
	const config = `cat > /etc/tegracast/tegracast.yaml <<END
rtsp: {listen: none}
sources: [{name: camera, model: {width: 64, height: 16, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}]
END
`
	dir := t.TempDir()
	packages(t, dir, newer, runtime.GOARCH)
	for release, suite := range map[string]string{"12": "bookworm", "13": "trixie"} {
		t.Run(suite, func(t *testing.T) {
			root := debianRoot(t, release, suite)
			deb := "tegracast_" + newer + "_" + runtime.GOARCH + ".deb"
			if err := os.Link(filepath.Join(dir, deb), filepath.Join(root, "root", deb)); err != nil {
				t.Fatal(err)
			}
			c := startContainer(t, root)
			must := func(line string) {
				t.Helper()
				if out, err := c.Shell(t.Context(), line); err != nil {
					log, _ := c.Shell(t.Context(), "systemctl status --no-pager -n 40 tegracast")
					t.Fatalf("%s: %v\n%s\n%s", line, err, out, log)
				}
			}
			must("systemctl --version | head -n 1 >&2; dpkg -i /root/" + deb + " >/dev/null; " + config + "systemctl start tegracast")
			must("systemd-analyze verify --man=no tegracast.service")
			reloadsTell(t, c.Shell)
			if suite == "trixie" {
				must("systemctl edit --runtime --stdin tegracast <<END\n[Service]\nType=notify-reload\nExecReload=\nEND\n" +
					"for i in 1 2 3; do systemctl reload tegracast || exit 1; journalctl --sync; " +
					"[ $(journalctl -q -b -u tegracast -o cat | grep -c 'SIGHUP: the configuration has not changed') = $i ] || exit 1; done; " +
					"[ $(systemctl show -P Type tegracast) = notify-reload ]")
			}
		})
	}
}
