// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestLintianOfDebian13 checks that lintian of Debian 13 has nothing to say of the packages: no error, warning,
// information or pedantry. It also says which files are not where a merged /usr has them.
func TestLintianOfDebian13(t *testing.T) {
	root := debian(t, "lintian-debian13", "trixie", runtime.GOARCH, "lintian", ownQEMU)
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := run(source, filepath.Join(root.dir, "srv"), "0.2.0", []string{"arm64", "amd64"}, false); err != nil {
		t.Fatal(err)
	}
	const lintian = "lintian --allow-root --pedantic --display-info --fail-on error,warning,info,pedantic /srv/"
	for _, deb := range []string{"tegracast_0.2.0_arm64.deb", "tegracast_0.2.0_amd64.deb", "tegracast-dkms_0.2.0_all.deb"} {
		if out, err := root.inside(t, lintian+deb).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("lintian of %s: %v\n%s", deb, err, out)
		}
	}
}

// TestAptLives installs a build from a release's repository with apt, updates it to the release, goes back, removes,
// installs and purges it, in a Debian that does not run. TestService does this in a running system.
func TestAptLives(t *testing.T) {
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const build, release = "0.2.0~git20261123.abcdef0", "0.2.0"
	root := debian(t, "debian12", "bookworm", runtime.GOARCH, "systemd,udev", ownQEMU)
	for _, version := range []string{build, release} {
		if err := run(source, filepath.Join(root.dir, "srv", version), version, []string{runtime.GOARCH}, true); err != nil {
			t.Fatal(err)
		}
	}
	sources := "deb [trusted=yes] file:/srv/" + build + "/apt ./\ndeb [trusted=yes] file:/srv/" + release + "/apt ./\n"
	if err := os.WriteFile(filepath.Join(root.dir, "etc/apt/sources.list"), []byte(sources), 0o644); err != nil {
		t.Fatal(err)
	}
	const (
		dropIns = "/etc/systemd/system/tegracast.service.d"
		units   = "/usr/lib/systemd/system/tegracast-devices.service\n/usr/lib/systemd/system/tegracast.service\n"

		get   = "apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 "
		state = "; tegracast version | head -n 1; systemctl is-enabled tegracast; ls /etc/tegracast /etc/systemd/system/tegracast.service.d"
		left  = "find / -xdev -name '*tegracast*' ! -path '/srv/*' ! -path '/proc/*' ! -path '/var/lib/apt/*' ! -path '/var/log/*' | sort"
	)
	for _, step := range []struct{ does, want string }{
		{"apt-get -qq update && " + get + "install tegracast=" + build + " | grep -c '# systemctl enable --now tegracast'", "1\n"},
		{"tegracast config default > /etc/tegracast/tegracast.yaml; touch /etc/tegracast/mine.cu; systemctl -q enable tegracast 2>&1", ""},
		{"cd /var/lib/tegracast; touch front.mcap web.token failures faults/a.txt; ls /usr/lib/systemd/system/tegracast*", units},
		{"cd " + dropIns + "; touch mine.conf; grep -c ^LimitMEMLOCK=[1-9] 50-memlock.conf; echo LimitMEMLOCK=1G > 50-memlock.conf", "1\n"},
		{get + "upgrade >/dev/null" + state, says(release, "mine.cu\ntegracast.yaml")},
		{get + "--allow-downgrades install tegracast=" + build + " >/dev/null" + state, says(build, "mine.cu\ntegracast.yaml")},
		{"cat " + dropIns + "/50-memlock.conf", "LimitMEMLOCK=1G\n"},
		{get + "remove tegracast >/dev/null; ls /etc/tegracast; test -e /usr/bin/tegracast || echo gone", "mine.cu\ntegracast.yaml\ngone\n"},
		{get + "install tegracast >/dev/null" + state, says(release, "mine.cu\ntegracast.yaml")},
		{get + "purge tegracast >/dev/null; " + left, "/etc/systemd/system/tegracast.service.d\n/etc/tegracast\n/var/lib/tegracast\n"},
		{"ls -A /etc/tegracast " + dropIns + " /var/lib/tegracast; dpkg --audit", "/etc/systemd/system/tegracast.service.d:\nmine.conf\n\n" +
			"/etc/tegracast:\nmine.cu\n\n/var/lib/tegracast:\nfront.mcap\n"},
	} {
		c := root.inside(t, step.does)
		var said strings.Builder
		c.Stderr = &said
		if out, err := c.Output(); string(out) != step.want {
			t.Errorf("%s: %v\n%s%s\nwant\n%s", step.does, err, out, &said, step.want)
		}
	}
}

// says returns the expected state of a Debian: tegracast in a version, enabled, and files in its folder.
func says(version, files string) string {
	return strings.Join([]string{
		"tegracast " + version, "enabled", "/etc/systemd/system/tegracast.service.d:", "50-memlock.conf", "mine.conf", "", "/etc/tegracast:", files, "",
	}, "\n")
}
