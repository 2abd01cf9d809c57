// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// standInWords is the maximum number of words in docs/stand-ins.md.
const standInWords = 1500

var (
	// Matches names of files and types, and comments, that declare a stand-in.
	standInName = regexp.MustCompile(`(?i)(fake|stand-?in|double|mock|stub)`)
	standInText = regexp.MustCompile(`(?m)^type (\w*[a-z])?(?i:fake|standin|double|mock)\w* struct|^[ \t]*(//|/\*|\*|#) ?(.*\b[Ss]tands? in for\b|A stand-in for\b)`)

	standInPath = regexp.MustCompile("`([a-z0-9_]+(?:/[A-Za-z0-9_.-]+)+)`")
)

// noStandIns lists files that match, and packages for tests, that are no stand-ins.
var noStandIns = map[string]string{
	"cmd/tegracast/programtest":       "builds and starts the program",
	"cudahost/headertest":             "compares what Go passes with a C header",
	"pipeline/arm64test":              "runs tests in QEMU's processor",
	"pipeline/infer/infertest":        "fetches libraries and models of others, and builds models",
	"pipeline/rtp/rtptest":            "pictures, ports and networks; MediaMTX is the real one",
	"pipeline/ucx/perftest":           "measures UCX",
	"pipeline/rtp/webrtc/livekittest": "LiveKit's own server and SDK",
	"tegra/kmod/kmodtest":             "tests of the module in the virtual Jetson",
	"tegra/tegratest":                 "the contract of the back ends",
	"fpga/rtl/rtltest":                "builds the simulation of the design",
	".ci/tools":                       "this check",
}

// TestEveryStandInHasAnEntry fails on a stand-in that is missing in docs/stand-ins.md, which says what it was compared
// with and what only hardware shows, and on a path there that is no stand-in.
func TestEveryStandInHasAnEntry(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs/stand-ins.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(page))); n > standInWords {
		t.Errorf("docs/stand-ins.md has %d words, more than %d", n, standInWords)
	}
	var named []string
	for _, m := range standInPath.FindAllStringSubmatch(string(page), -1) {
		named = append(named, m[1])
		if _, err := os.Stat(filepath.Join(root(t), m[1])); err != nil {
			t.Errorf("docs/stand-ins.md names %s: %v", m[1], err)
		}
	}
	found := standIns(t)
	if len(found) < 10 {
		t.Fatalf("only %v were found", found)
	}
	for _, at := range found {
		if !within(at, named) {
			t.Errorf("%s stands in for something, and docs/stand-ins.md does not say for what, and how it was compared", at)
		}
	}
}

// standIns returns the files that declare a stand-in, and the packages for tests, without the exceptions.
func standIns(t *testing.T) (found []string) {
	t.Helper()
	exceptions := make([]string, 0, len(noStandIns))
	for at := range noStandIns {
		exceptions = append(exceptions, at)
	}
	for file := range strings.FieldsSeq(string(output(t, nil, "git", "ls-files"))) {
		at := ""
		switch ext := path.Ext(file); {
		case strings.HasSuffix(path.Dir(file), "test") && ext == ".go":
			at = path.Dir(file)
		case !slices.Contains([]string{".go", ".c", ".cpp", ".h", ".sv", ".py", ".sh"}, ext):
			continue
		case standInName.MatchString(path.Base(file)):
			at = file
		default:
			source, err := os.ReadFile(filepath.Join(root(t), file))
			if err != nil || !standInText.Match(source) {
				continue
			}
			at = file
		}
		if !within(at, exceptions) && !slices.Contains(found, at) {
			found = append(found, at)
		}
	}
	return found
}

// within reports whether a file or folder is one of the paths, or below one.
func within(at string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return at == p || strings.HasPrefix(at, p+"/") })
}
