// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// vet matches a run of go vet in make lint, with the folder of its module, its tags and its packages.
var vet = regexp.MustCompile(`(?m)^go (?:-C (\S+) )?vet (?:-tags (\S+) )?(\S+)$`)

// notVetted lists files that make lint does not vet.
var notVetted = map[string]string{
	"capture/soak_race_test.go":                     "three constants, which only a build with the race detector has",
	"pipeline/isp/cuda/race_test.go":                "a constant, which only a build with the race detector has",
	"pipeline/isp/race_test.go":                     "a constant, which only a build with the race detector has",
	"pipeline/crc/fold_other.go":                    "for neither amd64 nor arm64",
	"pipeline/infer/preprocess/kernels_other.go":    "for neither amd64 nor arm64",
	"pipeline/isp/kernels_other.go":                 "for neither amd64 nor arm64",
	"pipeline/rtp/webrtc/livekittest/subscriber.go": "make test-long-streams vets it: its module needs LiveKit's hundred others",
}

// filesFormat lists the files of a package, tests included.
const filesFormat = `{{range .GoFiles}}{{$.Dir}}/{{.}} {{end}}{{range .CgoFiles}}{{$.Dir}}/{{.}} {{end}}` +
	`{{range .TestGoFiles}}{{$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}} {{end}}`

// TestLintCoversEveryFile fails on a Go file that no go vet of make lint can see on amd64 or arm64. The go command
// skips further modules, and folders whose names begin with a dot.
func TestLintCoversEveryFile(t *testing.T) {
	recipe := output(t, append(os.Environ(), "MAKEFLAGS="), "make", "--no-print-directory", "-n", "lint")
	commands, seen := vet.FindAllStringSubmatch(string(recipe), -1), map[string]bool{}
	for _, c := range commands {
		at := filepath.Join(root(t), c[1])
		for _, arch := range []string{"amd64", "arm64"} {
			list := output(t, target(arch), "go", "-C", at, "list", "-tags="+c[2], "-f", filesFormat, c[3])
			for file := range strings.FieldsSeq(string(list)) {
				seen[relative(t, file)] = true
			}
		}
	}
	n := 0
	for file := range strings.FieldsSeq(string(output(t, nil, "git", "ls-files", "*.go"))) {
		if _, err := os.Stat(filepath.Join(root(t), file)); err != nil {
			continue // deleted but not committed
		}
		if n++; seen[file] == (notVetted[file] != "") {
			t.Errorf("%s: make lint vets it: %v: have it vetted, or list it in notVetted", file, seen[file])
		}
	}
	if n < 1000 || len(commands) < 3 {
		t.Errorf("only %d files and %d modules were looked at", n, len(commands))
	}
}
