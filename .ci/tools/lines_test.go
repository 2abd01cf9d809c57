// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// The maximum length of lines in columns, with tabs of 4. Tests have longer ones, because they contain tables.
const (
	longest       = 160
	longestOfTest = 180
)

// long lists the folders with longer lines, and their numbers of such lines, which may only decrease.
var long = map[string]int{
	"capture":       0,
	"cmd/tegracast": 87,
	"pipeline":      6,
}

// TestLinesAreShort fails on long lines of Go. Tags of structs count as short, since they cannot be broken.
func TestLinesAreShort(t *testing.T) {
	found := map[string]int{}
	for file := range strings.FieldsSeq(string(output(t, nil, "git", "ls-files", "*.go"))) {
		source, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			continue // deleted but not committed
		}
		limit := longest
		if strings.HasSuffix(file, "_test.go") {
			limit = longestOfTest
		}
		n := 0
		for line := range strings.Lines(string(source)) {
			n++
			columns := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    "))
			if columns <= limit || strings.Contains(line, "`yaml:") {
				continue
			}
			if folder := folderOf(file); folder != "" {
				found[folder]++
				continue
			}
			t.Errorf("%s:%d: %d columns, more than %d: break the line", file, n, columns, limit)
		}
	}
	for folder, n := range long {
		switch is := found[folder]; {
		case is > n:
			t.Errorf("%s: %d long lines, there were %d: break the new ones", folder, is, n)
		case is < n:
			t.Logf("%s: %d long lines, there were %d: write that into the table", folder, is, n)
		}
	}
}

// folderOf returns the entry in long for a file.
func folderOf(file string) string {
	best := ""
	for folder := range long {
		if strings.HasPrefix(file, folder+"/") && len(folder) > len(best) {
			best = folder
		}
	}
	return best
}
