// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// text returns a program's output.
func text(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out)
	}
	return string(out)
}

// contents returns all files below a folder.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		all[path], err = os.ReadFile(filepath.Join(dir, path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// elsewhere copies the repository's files to another folder, with other modification times and the same commit.
func elsewhere(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(text(t, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		b, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		info, errStat := os.Stat(filepath.Join(root, name))
		to := filepath.Join(dir, name)
		if err := errors.Join(err, errStat, os.MkdirAll(filepath.Dir(to), 0o755)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		link := "gitdir: " + text(t, root, "git", "rev-parse", "--absolute-git-dir")
		if err := os.WriteFile(filepath.Join(dir, ".git"), []byte(link), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRelease makes a release, checks it with lintian, sha256sum and apt, runs the program of its image, and makes it
// again in another folder. Each file must be the same.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it compiles the program for another architecture")
	}
	needsPins(t, "arm64")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	first, second := t.TempDir(), t.TempDir()
	const version, arch = "0.2.0~git20261123.abcdef0", "arm64" // as compiled by other tests of `make test`
	if err := run(root, first, version, []string{arch}, true); err != nil {
		t.Fatal(err)
	}
	if err := run(root, first, version, []string{arch}, true); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("into a folder with a release: %v", err)
	}
	if err := run(elsewhere(t, root), second, version, []string{arch}, true); err != nil {
		t.Fatal(err)
	}
	a, b := contents(t, first), contents(t, second)
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s is not the same when it is made again", name)
		}
	}
	if len(a) != 10 || len(b) != 10 {
		t.Errorf("the release has %q, then %q", sorted(a), sorted(b))
	}
	text(t, first, "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	debs, err := filepath.Glob(filepath.Join(first, "apt/*.deb"))
	if err != nil || len(debs) != 2 {
		t.Fatalf("packages: %q %v", debs, err)
	}
	if said := text(t, first, "lintian", append([]string{"--allow-root", "--fail-on", "error,warning"}, debs...)...); said != "" {
		t.Errorf("lintian: %s", said)
	}
	aptReads(t, filepath.Join(first, "apt"), version, arch)
	lists(t, a, version, arch)
	image := filepath.Join(bundle(t, filepath.Join(first, "tegracast_"+version+"_linux_"+arch+".oci.tar")), "rootfs")
	if said := text(t, image, "qemu-aarch64", "-L", image, image+"/usr/bin/tegracast", "version"); !strings.HasPrefix(said, "tegracast "+version+"\n") {
		t.Errorf("the image's program, with the image's C library: %s", said)
	}
}

// aptReads checks that apt can read the repository, with its own state and without a network, and finds what the packages
// need.
func aptReads(t *testing.T, repository, version, arch string) {
	t.Helper()
	state := t.TempDir()
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(state, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The dependencies of the packages are marked as installed.
	status := ""
	for _, p := range []string{"libc6", "systemd", "udev", "dkms", "kmod"} {
		status += fmt.Sprintf("Package: %s\nStatus: install ok installed\nVersion: 999\nArchitecture: %s\nMaintainer: a\nDescription: b\n\n", p, arch)
	}
	err := errors.Join(os.WriteFile(filepath.Join(state, "status"), []byte(status), 0o600),
		os.WriteFile(filepath.Join(state, "sources.list"), []byte("deb [trusted=yes] file:"+repository+" ./\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	options := []string{
		"-oAPT::Architecture=" + arch, "-oAPT::Architectures=" + arch + "," + runtime.GOARCH, "-oDir::State=" + state, "-oDir::State::Lists=" + state + "/lists",
		"-oDir::State::status=" + state + "/status", "-oDir::Cache=" + state + "/cache", "-oDir::Etc::sourcelist=" + state + "/sources.list",
		"-oDir::Etc::sourceparts=/dev/null", "-oAPT::Sandbox::User=root", "-oDebug::NoLocking=1", "-qq",
	}
	text(t, state, "apt-get", append(options, "update", "-oAPT::Update::Error-Mode=any")...)
	said := text(t, state, "apt-get", append(options, "install", "--simulate", "tegracast")...)
	for _, want := range []string{"Inst tegracast-dkms (" + version + " ", "Inst tegracast (" + version + " "} { // one recommends the other
		if !strings.Contains(said, want) {
			t.Errorf("apt would not do %q:\n%s", want, said)
		}
	}
}

// lists compares the program's list with the output of the go command.
func lists(t *testing.T, release map[string][]byte, version, arch string) {
	t.Helper()
	title := "tegracast_" + version + "_linux_" + arch
	dir := t.TempDir()
	archive := filepath.Join(dir, "archive")
	if err := os.WriteFile(archive, release[title+".tar.gz"], 0o600); err != nil {
		t.Fatal(err)
	}
	text(t, dir, "tar", "-xf", archive)
	var d document
	if err := json.Unmarshal(release[title+".spdx.json"], &d); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	ids := map[string]bool{}
	for _, p := range d.Packages {
		has[p.Name+" "+p.Version], ids[p.ID] = true, true
	}
	n := 0
	for line := range strings.Lines(text(t, dir, "go", "version", "-m", title+"/tegracast")) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
			n++
			if !has[f[1]+" "+f[2]] {
				t.Errorf("the bill has nothing of %s %s", f[1], f[2])
			}
		}
	}
	for _, pin := range pins {
		if !has[pin.name+" "+pin.version] {
			t.Errorf("the bill has nothing of %s %s", pin.name, pin.version)
		}
	}
	if want := n + 3 + len(pins); n < 20 || len(ids) != want || len(d.Relationships) != want+1 {
		t.Errorf("%d modules, %d packages in the bill, with %d relationships", n, len(ids), len(d.Relationships))
	}
	sum, _, _ := strings.Cut(text(t, dir, "sha256sum", title+"/tegracast"), " ")
	if d.Packages[0].Sums[0].Value != sum || !has["tegracast "+version] {
		t.Errorf("the bill has %+v, the program has the sum %s", d.Packages[0], sum)
	}
}
