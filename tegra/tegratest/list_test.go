// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// elsewhere lists the errnos that no entry of the list can cause, and where they are tested.
var elsewhere = map[string]string{
	"open EPERM":           "guest: TestUnsafe",
	"open EBUSY":           "guest: TestOwner",
	"open EIO":             "nowhere: a function that does not come back",
	"open EINTR":           "nowhere: a signal during a reset",
	"GET_REGION EINTR":     "nowhere: a signal during a reset",
	"PIN ENOMEM":           "guest: TestMemlock; tegrasim.Refusals",
	"PIN EAGAIN":           "guest: TestHabits, TestPinAgainstMunmap; tegrasim.Refusals",
	"PIN EINTR":            "guest: TestStalledFuse; package uapi calls again",
	"PIN EIO":              "guest: TestHabits; tegrasim.Refusals",
	"PIN EOPNOTSUPP":       "guest: TestHabits; tegrasim.Refusals",
	"PIN EPERM":            "guest: TestUnsafe; tegrasim.Refusals",
	"ALLOC ENOMEM":         "guest: TestInjected; tegrasim.Refusals",
	"ALLOC EPERM":          "tegrasim.Refusals",
	"SET_EVENT EBUSY":      "guest: TestBadCalls; tegra: TestBusyDevice",
	"SET_HALT ENOMEM":      "guest: TestInjected",
	"SET_HALT EBUSY":       "guest: TestBadCalls",
	"CONTROL RESUME EIO":   "guest: TestSuspend; tegrasim.Refusals",
	"CONTROL RESUME EPERM": "guest: TestExposed; tegrasim.Refusals",
	"CONTROL RESET EBUSY":  "nowhere: a reset while the driver is unbound",
	"CONTROL RESET EIO":    "nowhere: a function that does not come back",
	"CONTROL UNMASK EBUSY": "guest: TestLine",
}

var (
	errnoName = regexp.MustCompile(`\bE[A-Z0-9]{2,}\b`)
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// documented returns "CALL ERRNO" for each of the table of calls in docs/module.md.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../../docs/module.md")
	if errors.Is(err, fs.ErrNotExist) && *devicePath != "" {
		t.Skip("NEEDS the source: this is a board")
	} else if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| call | function | further errnos |")
	found := map[string]bool{}
	for line := range strings.Lines(table[strings.Index(table, "\n")+1:]) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			break
		}
		call := quoted.FindStringSubmatch(cells[1])
		if call == nil || call[1] == "EXPORT" || call[1] == "IMPORT" {
			continue // the line below the heading, or dma-bufs, which exist only as calls
		}
		name := call[1]
		if _, op, ok := strings.Cut(cells[1], "` "); ok && name == "CONTROL" {
			name += " " + strings.TrimSpace(op)
		}
		for _, errno := range errnoName.FindAllString(cells[3], -1) {
			found[name+" "+errno] = true
		}
	}
	return found
}

func nameOf(errno unix.Errno) string {
	if errno == unix.EOPNOTSUPP {
		return "EOPNOTSUPP" // the same number as ENOTSUP
	}
	return unix.ErrnoName(errno)
}

// TestEveryErrnoHasAnEntry checks that every documented errno of a call is tested, on every back end that has the call.
func TestEveryErrnoHasAnEntry(t *testing.T) {
	pages := documented(t)
	if len(pages) < 30 {
		t.Fatalf("only %d errnos were found in docs/module.md", len(pages))
	}
	have := map[string]bool{}
	for _, f := range list() {
		have[f.call+" "+nameOf(f.errno)] = true
		if f.calls == nil || (f.pinner == nil) != (f.want == nil) {
			t.Errorf("%s of %s has no way to do it", f.call, f.what)
		}
	}
	for name := range pages {
		if !have[name] && elsewhere[name] == "" {
			t.Errorf("docs/module.md has %s: add it to list, or say where it is tested", name)
		}
	}
	for name := range elsewhere {
		if have[name] {
			t.Errorf("%s is in the list: it is not elsewhere", name)
		}
	}
}

// TestNoEntryTwice checks that entries have unique names.
func TestNoEntryTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range list() {
		if name := f.call + " of " + f.what; seen[name] {
			t.Errorf("%s is there twice", name)
		} else {
			seen[name] = true
		}
	}
}
