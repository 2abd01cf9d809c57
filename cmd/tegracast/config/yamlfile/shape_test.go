// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// indented repeats a line n times, each further to the right.
func indented(n int, line string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + line + "\n")
	}
	return b.String()
}

// numbered returns n keys of one map.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	return b.String()
}

// TestAFileThatIsTooDeepIsRefusedCheaply checks that a file of a megabyte with deep nesting or many repetitions is
// refused with a place and takes little memory.
func TestAFileThatIsTooDeepIsRefusedCheaply(t *testing.T) {
	many := func(s string) string { return strings.Repeat(s, 1<<20/len(s)) }
	for name, text := range map[string]string{
		"flow lists": "a: " + many("["), "flow maps": many("{a: "), "both": many("[{a: "), "entries": many("- "), "keys": many("? "),
		"lines of entries": indented(1000, "-"), "lines of keys": indented(1000, "a:"), "one map": numbered(50000),
		"lists after a comment": "# [\n" + many("["), "unclosed text": "a: \"" + many("["), "tags": many("!a "), "anchors": many("&a "),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("c.yaml", []byte(text), &struct {
			A []string `yaml:"a"`
		}{})
		runtime.ReadMemStats(&after)
		if err == nil || !regexp.MustCompile(`^c\.yaml:\d+:\d+: `).MatchString(err.Error()) {
			t.Errorf("%s: %.100v", name, err)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 500 {
			t.Errorf("%s: %d MiB were allocated", name, used)
		}
	}
}

// TestAFileThatIsLongAndFlatIsRead checks that brackets in text and comments do not count, nor do lists beside one
// another.
func TestAFileThatIsLongAndFlatIsRead(t *testing.T) {
	var into struct {
		A [][]int  `yaml:"a,omitempty"`
		B []string `yaml:"b,omitempty"`
		C string   `yaml:"c,omitempty"`
	}
	text := "a: [" + strings.Repeat("[1, 2],\n      ", 10000) + "[3, 4]]\n" +
		"b:\n" + strings.Repeat("  - x # [[[[[[[[[[{{{{{{{{{{ - - - -\n", 5000) +
		"c: \"" + strings.Repeat("[{", 1000) + "\"\n"
	if _, err := Parse("c.yaml", []byte(text), &into); err != nil {
		t.Fatal(err)
	}
	if len(into.A) != 10001 || len(into.B) != 5000 || len(into.C) != 2000 {
		t.Errorf("%d lists, %d texts, %d characters", len(into.A), len(into.B), len(into.C))
	}
}
