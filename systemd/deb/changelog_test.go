// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

func TestDebianChangelog(t *testing.T) {
	const changes = `# Changelog

Text.

## [Unreleased]

### Added

- A thing that needs so many words to be said that one line of a changelog of eighty
  columns does not hold them.
- Another.

## [0.1.0] - 2026-09-30

- The first.

[Unreleased]: https://example.org
`
	const want = `tegracast (0.2.0~git20261123.abcdef0) unstable; urgency=medium

  [ Added ]
  * A thing that needs so many words to be said that one line of a changelog of
    eighty columns does not hold them.
  * Another.

 -- tegracast <tegracast@users.noreply.github.com>  Mon, 23 Nov 2026 01:02:03 +0000

tegracast (0.1.0) unstable; urgency=medium

  * The first.

 -- tegracast <tegracast@users.noreply.github.com>  Wed, 30 Sep 2026 00:00:00 +0000
`
	id := identity{version: "0.2.0~git20261123.abcdef0", made: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)}
	if got, err := debianChangelog("tegracast", changes, id); err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := debianChangelog("tegracast", "# Changelog\n", id); err == nil || !strings.Contains(err.Error(), "no heading") {
		t.Errorf("without a heading: %v", err)
	}
}

// FuzzDebianChangelog checks that no line is longer than its longest word requires.
func FuzzDebianChangelog(f *testing.F) {
	f.Add("## [Unreleased]\n- a b c\n  d\n### Fixed\n## [0.1.0] - 2026-99-99\n")
	f.Fuzz(func(t *testing.T, changes string) {
		got, err := debianChangelog("tegracast", changes, identity{version: "1.0.0"})
		if err == nil && (!strings.HasPrefix(got, "tegracast (") || !strings.HasSuffix(got, "+0000\n")) {
			t.Errorf("%q", got)
		}
	})
}
