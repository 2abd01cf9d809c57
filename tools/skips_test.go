// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"regexp"
	"strings"
	"testing"
)

// TestSkipsSayWhy: whatever is skipped begins with one of three words: what it NEEDS and who installs it, that it takes LONG and who runs
// it, or that -short (SHORT) leaves it out. Benchmarks do the same.
func TestSkipsSayWhy(t *testing.T) {
	good := regexp.MustCompile(`\.Skipf?\("(NEEDS |LONG: |SHORT: )`)
	found := 0
	for line := range strings.Lines(string(output(t, nil, "git", "grep", "-nE", `[tb]\.(Skip|Skipf|SkipNow)\(`, "--", "*.go", ":!tools"))) {
		found++
		if !good.MatchString(line) {
			t.Errorf("this does not say in a word why: %s", line)
		}
	}
	if found < 50 {
		t.Errorf("only %d are found", found)
	}
}
