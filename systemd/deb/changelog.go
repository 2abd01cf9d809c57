// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// maintainer is the maintainer of the packages.
const maintainer = "tegracast <tegracast@users.noreply.github.com>"

// released matches a heading in CHANGELOG.md: [0.1.0] - 2026-09-30, or [Unreleased].
var released = regexp.MustCompile(`^## \[(.+?)\](?: - ([0-9]{4}-[0-9]{2}-[0-9]{2}))?$`)

// debianChangelog makes a package's changelog (deb-changelog(5)) from CHANGELOG.md. Unreleased changes, and a release
// without a day, belong to this build.
func debianChangelog(name, changes string, id identity) (string, error) {
	var b strings.Builder
	var item []string // words of the current item
	finish := func() {
		if len(item) > 0 {
			b.WriteString(wrapped(item))
		}
		item = nil
	}
	end := "" // end of the current entry
	for line := range strings.Lines(changes) {
		line = strings.TrimRight(line, "\n")
		text, isItem := strings.CutPrefix(line, "- ")
		if !isItem && strings.HasPrefix(line, "  ") {
			item = append(item, strings.Fields(line)...)
			continue
		}
		finish()
		switch m := released.FindStringSubmatch(line); {
		case m != nil:
			version, day := m[1], id.made
			if m[2] == "" {
				version = id.version
			} else if at, err := time.Parse(time.DateOnly, m[2]); err == nil {
				day = at
			}
			fmt.Fprintf(&b, "%s%s (%s) unstable; urgency=medium\n\n", end, name, version)
			end = fmt.Sprintf("\n -- %s  %s\n\n", maintainer, day.Format(time.RFC1123Z))
		case end == "":
		case strings.HasPrefix(line, "### "):
			fmt.Fprintf(&b, "  [ %s ]\n", strings.TrimPrefix(line, "### "))
		case isItem:
			item = strings.Fields(text)
		}
	}
	finish()
	if end == "" {
		return "", errors.New("CHANGELOG.md has no heading such as ## [Unreleased] or ## [0.1.0] - 2026-09-30")
	}
	return b.String() + strings.TrimRight(end, "\n") + "\n", nil
}

// wrapped formats an item of a changelog in lines of at most 80 columns.
func wrapped(words []string) string {
	var b strings.Builder
	line := "  *"
	for _, w := range words {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > 80 && line != "   " {
			b.WriteString(line + "\n")
			line = "   "
		}
		line += " " + w
	}
	return b.String() + line + "\n"
}
