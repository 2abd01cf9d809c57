// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"regexp"
	"strings"
	"testing"
)

// TestSkipsSayWhy checks that each reason for a skip begins with one of three words: NEEDS, with what is missing and how
// to install it; LONG, with what runs it; or SHORT, for -short. The same applies to benchmarks.
func TestSkipsSayWhy(t *testing.T) {
	good := regexp.MustCompile(`\.Skipf?\("(NEEDS |LONG: |SHORT: )`)
	found := 0
	for line := range strings.Lines(string(output(t, nil, "git", "grep", "-nE", `[tb]\.(Skip|Skipf|SkipNow)\(`, "--", "*.go", ":!.ci/tools"))) {
		found++
		if !good.MatchString(line) {
			t.Errorf("this does not say in a word why: %s", line)
		}
	}
	if found < 50 {
		t.Errorf("only %d are found", found)
	}
}
