// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/fpga/vfiouser/endpoint"
)

// packages builds the Debian packages of a version for one architecture into a folder.
func packages(t *testing.T, dir, version, arch string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "-C", "../../systemd/deb", "run", ".", "--root", "../..", "--out", dir, "--version", version, "--arch", arch)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("packages: %v\n%s", err, out)
	}
}

// TestRuleTakesDMACores checks that the udev rule matches functions with an id that AMD assigns to DMA cores, and no
// others of that vendor.
func TestRuleTakesDMACores(t *testing.T) {
	rule, err := os.ReadFile("../../systemd/dkms/tegra_p2p.rules")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`ATTR\{device\}=="(.*?)"`).FindSubmatch(rule)
	if m == nil {
		t.Fatal("the rule has no device ids")
	}
	for id, want := range map[string]bool{
		fmt.Sprintf("%#x", endpoint.Device): true, "0x7011": true, "0x8038": true, "0x9048": true, "0x903f": true,
		"0x5000": false, "0x6a98": false, "0x7054": false, "0x7023": false, "0xa038": false, "0x70281": false, "0x9234": false,
	} {
		if takes, err := path.Match(string(m[1]), id); takes != want || err != nil {
			t.Errorf("%s: %v %v, want %v", id, takes, err, want)
		}
	}
}

// TestLimitOfLockedMemory checks that the package limits the service's locked memory to half of the machine's when it is
// first configured, and never again. purge removes the file, and the folder if it is empty.
func TestLimitOfLockedMemory(t *testing.T) {
	root, bin := t.TempDir(), t.TempDir()
	folder := filepath.Join(root, "etc/systemd/system/tegracast.service.d")
	file := filepath.Join(folder, "50-memlock.conf")
	for _, name := range []string{"systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "proc/meminfo"), "MemTotal:       15733476 kB\nMemFree:         1000000 kB\n")
	script := func(name string, args ...string) {
		t.Helper()
		text, err := os.ReadFile("../../systemd/deb/scripts/tegracast." + name)
		if err != nil {
			t.Fatal(err)
		}
		moved := strings.NewReplacer("/etc/", root+"/etc/", "/proc/", root+"/proc/", "/run/", root+"/run/", "/var/", root+"/var/").Replace(string(text))
		c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", "umask 077\n" + moved, name}, args...)...)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	limits := func(when string, want uint64) {
		t.Helper()
		if l, err := memlock.OfService(os.DirFS(root)); err != nil || (l == nil) != (want == 0) || l != nil && l.Bytes != want {
			t.Errorf("%s: %+v %v, want %d", when, l, err, want)
		}
	}
	script("postinst", "configure", "0.1.0")
	limits("an update from a version without it", 0)
	script("postinst", "configure", "")
	limits("the first installation", 7682<<20)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", info, err)
	}
	write(file, "[Service]\nLimitMEMLOCK=1G\n")
	script("postinst", "configure", "0.1.0")
	limits("an update", 1<<30)
	script("postinst", "configure", "")
	limits("an installation where it is already", 1<<30)
	script("postrm", "remove")
	limits("removed", 1<<30)
	mine := filepath.Join(folder, "mine.conf")
	write(mine, "")
	script("postrm", "purge")
	limits("purged", 0)
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	script("postinst", "configure", "")
	limits("installed again", 7682<<20)
	script("postrm", "purge")
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
