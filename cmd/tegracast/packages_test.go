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
	"slices"
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

// scripts returns a folder that stands for / in the package's scripts, and a function that runs one of them.
func scripts(t *testing.T) (root string, script func(name string, args ...string) (said string)) {
	t.Helper()
	root, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return root, func(name string, args ...string) string {
		t.Helper()
		text, err := os.ReadFile("../../systemd/deb/scripts/tegracast." + name)
		if err != nil {
			t.Fatal(err)
		}
		moved := strings.NewReplacer("/etc/", root+"/etc/", "/proc/", root+"/proc/", "/run/", root+"/run/", "/var/", root+"/var/").Replace(string(text))
		c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", "umask 077\n" + moved, name}, args...)...)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
}

// TestPurgeKeepsRecordings checks that purge removes what the service keeps for itself, that recordings and other files
// stay, and that the state folder goes once it is empty.
func TestPurgeKeepsRecordings(t *testing.T) {
	root, script := scripts(t)
	state := filepath.Join(root, "var/lib/tegracast")
	mine := []string{"front-20261129T021343185Z.mcap", "night/front.mcap", "night/notes.txt"}
	for _, name := range append([]string{
		"tegracast.yaml", "tegracast.yaml.old", "failures.new", "web.token", "failures", "bus/000001", "faults/a.txt", "kernels/a.cubin",
		"quarantine/a.json", ".nv/ComputeCache/a",
	}, mine...) {
		path := filepath.Join(state, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (list []string) {
		t.Helper()
		err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				list = append(list, strings.TrimPrefix(path, state+"/"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	script("postrm", "remove")
	if list := left(); len(list) != len(mine)+10 {
		t.Errorf("after remove: %q", list)
	}
	if said, list := script("postrm", "purge"), left(); !slices.Equal(list, mine) || !strings.Contains(said, "recordings") {
		t.Errorf("after purge: %q\n%s", list, said)
	}
	for _, name := range []string{mine[0], "night"} {
		if err := os.RemoveAll(filepath.Join(state, name)); err != nil {
			t.Fatal(err)
		}
	}
	if said := script("postrm", "purge"); said != "" {
		t.Errorf("without recordings: %s", said)
	}
	if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty folder is left: %v", err)
	}
}

// TestLimitOfLockedMemory checks that the package limits the service's locked memory to half of the machine's when it is
// first configured, and never again. purge removes the file, and the folder if it is empty.
func TestLimitOfLockedMemory(t *testing.T) {
	root, script := scripts(t)
	folder := filepath.Join(root, "etc/systemd/system/tegracast.service.d")
	file := filepath.Join(folder, "50-memlock.conf")
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "proc/meminfo"), "MemTotal:       15733476 kB\nMemFree:         1000000 kB\n")
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
