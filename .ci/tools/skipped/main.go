// SPDX-License-Identifier: Apache-2.0

// Command skipped reads the output of go test -json, and prints that of go test without -json: a line for each package,
// and the output of failed tests. At the end it lists the skipped tests by reason, which go test does not do.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/.ci/tools/gotest"
)

// A reader processes the events of go test -json.
type reader struct {
	out     io.Writer
	said    map[string][]string // output of unfinished tests, by package and test
	skipped map[string][]string // names of skipped tests, by reason
}

func main() {
	r := reader{os.Stdout, map[string][]string{}, map[string][]string{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "skipped:", err)
		os.Exit(1)
	}
	r.report()
}

func (r *reader) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		var e gotest.Event
		if json.Unmarshal([]byte(line), &e) == nil {
			r.take(e)
		} else {
			fmt.Fprint(r.out, line)
		}
		if err != nil { // unfinished tests never end: go test was killed
			r.tell("")
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) take(e gotest.Event) {
	name := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output", e.Action == "output" && e.Test == "" && e.Output != "PASS\n":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "output" && e.Test != "" && !strings.HasPrefix(e.Output, "=== "):
		r.said[name] = append(r.said[name], e.Output)
	case e.Action == "fail" && e.Test == "": // output of its unfinished tests
		r.tell(name)
	case e.Action == "fail":
		fmt.Fprint(r.out, strings.Join(r.said[name], ""))
		delete(r.said, name)
	case e.Action == "skip" && e.Test != "":
		why := gotest.Reason(r.said[name])
		r.skipped[why] = append(r.skipped[why], e.Test)
		delete(r.said, name)
	case e.Action == "pass" && e.Test == "":
		maps.DeleteFunc(r.said, func(other string, _ []string) bool { return strings.HasPrefix(other, name) })
	case e.Action == "pass":
		delete(r.said, name)
	}
}

// tell prints, and then forgets, the output of unfinished tests. of is a package's path followed by a space, or "" for
// all packages.
func (r *reader) tell(of string) {
	for _, name := range slices.Sorted(maps.Keys(r.said)) {
		if strings.HasPrefix(name, of) {
			fmt.Fprint(r.out, strings.Join(r.said[name], ""))
			delete(r.said, name)
		}
	}
}

func (r *reader) report() {
	if len(r.skipped) == 0 {
		return
	}
	fmt.Fprintln(r.out, "skipped:")
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := slices.Compact(slices.Sorted(slices.Values(r.skipped[why])))
		fmt.Fprintf(r.out, "  %s\n    %s\n", why, strings.Join(tests, " "))
	}
}
