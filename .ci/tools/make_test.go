// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakeNeedsGo checks that make reports a Go that cannot read go.mod, or a missing one, in one line with a remedy.
func TestMakeNeedsGo(t *testing.T) {
	for version, want := range map[string]string{
		"go1.19.8": "and here is go1.19.8", "go1.4": "and here is go1.4", "go1.20": "and here is go1.20", "": "and here is no Go",
		"go1.21.0": "", "go1.26.8": "", "go1.100": "", "go2.0": "",
	} {
		dir := t.TempDir()
		script := "#!/bin/sh\necho go version " + version + " linux/amd64\n"
		if version == "" {
			script = "#!/bin/sh\nexit 127\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-s", "go")
		cmd.Dir, cmd.Env = root(t), append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "MAKEFLAGS=")
		out, err := cmd.CombinedOutput()
		said, _, _ := strings.Cut(string(out), "\n")
		if (err != nil) != (want != "") || !strings.Contains(said, want) || want != "" && !strings.Contains(said, "https://go.dev/dl") {
			t.Errorf("%q: %v, %q, want %q", version, err, out, want)
		}
	}
}

// TestNothingNeedsRootToRun checks that the targets run and deb install no Debian package except git.
func TestNothingNeedsRootToRun(t *testing.T) {
	for target, want := range map[string]bool{"run": false, "deb": false, "release": false, "test": true} {
		cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-n", target)
		cmd.Dir, cmd.Env = root(t), append(os.Environ(), "MAKEFLAGS=")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(out), "qemu-system"); got != want {
			t.Errorf("make %s installs emulators: %v, want %v", target, got, want)
		}
	}
}
