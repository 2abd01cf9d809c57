// SPDX-License-Identifier: Apache-2.0

// Command peers runs the tests of its table, each of which checks something with another program or library, and writes
// docs/peers.md, a table of the results. Its exit status is 1 if a test has failed or the page cannot be written.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/.ci/tools/gotest"
)

const (
	root   = "../.." // of the main module, from .ci/tools
	page   = root + "/docs/peers.md"
	failed = "FAIL"
)

func main() {
	text := head()
	results := map[string]map[string]string{}
	for _, folder := range slices.Sorted(maps.Keys(folders())) {
		results[folder] = run(folder, folders()[folder])
	}
	bad := false
	for _, r := range sorted() {
		result := verdict(results[r.folder], r.test)
		bad = bad || result == failed
		text += fmt.Sprintf("| %s | %s | %s | %s | %s `%s` |\n", r.peer, version(r.peer), r.what, result, r.folder, r.test)
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		bad = true
	}
	if bad {
		os.Exit(1)
	}
}

// head returns the page up to the table's rows.
func head() string {
	commit := shell("git describe --always --tags --abbrev=12")
	if shell("git status --porcelain -- . ':!docs/peers.md'") != "" {
		commit += "+changes"
	}
	return fmt.Sprintf("<!-- SPDX-License-Identifier: Apache-2.0 -->\n# Peers\n\nWhat the tests check with programs and libraries of others. "+
		"`make test-long-peers` has run them and written this page, at commit %s, on %s.\n\n"+
		"| Peer | Version | What | Result | Test |\n|---|---|---|---|---|\n", commit, time.Now().UTC().Format(time.DateOnly))
}

// sorted returns the table's rows by peer.
func sorted() []row {
	return slices.SortedStableFunc(slices.Values(table), func(a, b row) int {
		return cmp.Compare(strings.ToLower(a.peer), strings.ToLower(b.peer))
	})
}

// folders returns the names of the table's test functions, by the folder of their package.
func folders() map[string][]string {
	all := map[string][]string{}
	for _, r := range table {
		name, _, _ := strings.Cut(r.test, "/")
		all[r.folder] = append(all[r.folder], name)
	}
	return all
}

// run runs test functions of a package, and returns the results of these and their subtests, by name.
func run(folder string, tests []string) map[string]string {
	c := exec.Command("go", "test", "-count=1", "-p", "1", "-timeout", "20m", "-json", "-run", "^("+strings.Join(tests, "|")+")$", "./"+folder)
	c.Dir, c.Stderr = root, os.Stderr
	c.Env = slices.DeleteFunc(append(os.Environ(), "TEGRACAST_LONG=1"), func(s string) bool { return strings.HasPrefix(s, "MAKEFLAGS=") })
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		return nil
	}
	results := read(out, folder, os.Stdout)
	_ = c.Wait() // the results show failed tests
	return results
}

// read reads the output of go test -json, prints its progress, and returns the results of tests by name.
func read(from io.Reader, folder string, to io.Writer) map[string]string {
	said, results := map[string][]string{}, map[string]string{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return results
		}
		var e gotest.Event
		switch _ = json.Unmarshal([]byte(line), &e); e.Action {
		case "output", "build-output":
			if said[e.Test] = append(said[e.Test], e.Output); e.Test == "" {
				fmt.Fprint(to, e.Output)
			}
			continue
		case "pass":
			results[e.Test] = "pass"
		case "fail":
			results[e.Test] = failed
			fmt.Fprint(to, strings.Join(said[e.Test], ""))
		case "skip":
			results[e.Test] = "not run: " + reason(said[e.Test])
		default:
			continue
		}
		if e.Test != "" && !strings.Contains(e.Test, "/") {
			fmt.Fprintf(to, "%7.1f s  %s %s: %s\n", e.Elapsed, folder, e.Test, results[e.Test])
		}
	}
}

var paths = regexp.MustCompile(`(^|\s)/\S+`)

// reason returns the reason of a skipped test, without absolute paths, as the cell of a table.
func reason(said []string) string {
	return strings.ReplaceAll(paths.ReplaceAllString(gotest.Reason(said), "$1…"), "|", `\|`)
}

// verdict returns the worst of the results of the tests that a row names, and of their subtests. A test that has not
// begun has the result of its parent, unless that has passed.
func verdict(results map[string]string, test string) string {
	named, worst := regexp.MustCompile("^"+test+"(/.*)?$"), ""
	for _, name := range slices.Sorted(maps.Keys(results)) {
		if result := results[name]; named.MatchString(name) && (worst == "" || worst == "pass" || result == failed) {
			worst = result
		}
	}
	if parent, _, _ := strings.Cut(test, "/"); worst == "" && results[parent] != "pass" {
		worst = results[parent]
	}
	return cmp.Or(worst, failed)
}

// version returns the version of a peer.
func version(peer string) string {
	return cmp.Or(shell(versions[peer]), "not installed")
}

// shell returns the output of a command that is run in the root of the tree, or "" if it fails.
func shell(command string) string {
	c := exec.Command("sh", "-c", command)
	c.Dir = root
	out, err := c.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
