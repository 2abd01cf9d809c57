// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tree is a repository that contains only systemd/version and VERSION, and no commit.
type tree struct {
	t   *testing.T
	dir string
}

func newTree(t *testing.T) tree {
	t.Helper()
	r := tree{t, t.TempDir()}
	script, err := os.ReadFile("../version")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.dir, "systemd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "systemd/version"), script, 0o700); err != nil {
		t.Fatal(err)
	}
	r.write("VERSION", "0.2.0\n")
	return r
}

func (r tree) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run runs a program in the tree, with only git's own settings.
func (r tree) run(name string, args ...string) (string, error) {
	c := exec.CommandContext(r.t.Context(), name, args...)
	c.Dir = r.dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@b", "GIT_COMMITTER_DATE=2026-11-23T23:30:00-0800", "TZ=America/Los_Angeles", "SOURCE_DATE_EPOCH=")
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (r tree) git(args ...string) {
	r.t.Helper()
	if out, err := r.run("git", args...); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// says runs systemd/version and compares its whole output.
func (r tree) says(when, want string) {
	r.t.Helper()
	if out, _ := r.run("systemd/version"); !regexp.MustCompile("^" + want + "$").MatchString(out) {
		r.t.Errorf("%s: %q, want %q", when, out, want)
	}
}

// TestVersion checks that a build is named by its tag, by VERSION and the commit, or by VERSION alone.
func TestVersion(t *testing.T) {
	r := newTree(t)
	r.says("without git", `0\.2\.0 unknown [0-9]{10}`)
	r.write("VERSION", "0.2\n")
	r.says("not a version", "version: VERSION is 0.2: write it as MAJOR.MINOR.PATCH")
	r.write("VERSION", "0.2.0\n")
	r.git("init", "-q")
	r.git("add", ".")
	r.git("commit", "-qm", "one")
	const commit, seconds = `([0-9a-f]{40})`, "1795505400" // the 24th in UTC
	r.says("without a tag", `0\.2\.0~git20261124\.[0-9a-f]{7} `+commit+" "+seconds)
	r.git("tag", "v0.1.0")
	r.says("on a tag", `0\.1\.0 `+commit+" "+seconds)
	r.write("VERSION", "0.2.1\n")
	r.says("on a tag, with changes", `0\.1\.0\+dirty `+commit+"-dirty "+seconds)
	r.git("commit", "-qam", "two")
	r.says("behind a tag", `0\.2\.1~git20261124\.[0-9a-f]{7} `+commit+" "+seconds)
	r.git("tag", "-am", "candidate", "v0.2.1-rc.1")
	r.says("on a candidate", `0\.2\.1~rc\.1 `+commit+" "+seconds)
	r.git("tag", "-d", "v0.2.1-rc.1")
	r.git("tag", "v0.2.1", "HEAD~")
	r.says("behind its own release", "version: VERSION is 0.2.1, and v0.2.1 is released: raise VERSION")
	r.write("VERSION", "0.10.0\n")
	r.says("raised, with changes", `0\.10\.0~git20261124\.[0-9a-f]{7}\+dirty `+commit+"-dirty "+seconds)
	if out, _ := r.run("env", "SOURCE_DATE_EPOCH=7", "systemd/version", "--ldflags"); !strings.HasSuffix(out, "-dirty -X main.commitTime=7") {
		t.Errorf("for the linker: %q", out)
	}
}

// TestVersionsSort checks that dpkg sorts a build before its release and after the previous release.
func TestVersionsSort(t *testing.T) {
	ordered := []string{"0.1.0", "0.1.0+dirty", "0.2.0~git20261123.abcdef0", "0.2.0~git20261123.abcdef0+dirty", "0.2.0~git20261124.0000000", "0.2.0~rc.1", "0.2.0"}
	for i, v := range ordered[1:] {
		if out, err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", ordered[i], "lt", v).CombinedOutput(); err != nil {
			t.Errorf("%s is not older than %s: %v %s", ordered[i], v, err, out)
		}
	}
}
