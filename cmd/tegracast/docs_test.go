// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sources is the text of all programs outside the tests.
func sources(t *testing.T) string {
	t.Helper()
	root := filepath.Join("..", "..")
	var all strings.Builder
	for _, dir := range []string{"board", "capture", "cmd", "cudahost", "fpga", "pipeline", "tegra"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestPagesQuoteTheProgram: the messages that docs/troubleshooting.md quotes, and the words of docs/glossary.md, are the program's.
func TestPagesQuoteTheProgram(t *testing.T) {
	program := sources(t)
	for page, quoted := range map[string]*regexp.Regexp{
		"troubleshooting.md": regexp.MustCompile("(?m)^\\| `([^`]+)` \\|"),
		"glossary.md":        regexp.MustCompile(`(?m)^\| ([a-zA-Z0-9][a-zA-Z0-9 -]*)[,.a-zA-Z0-9 ]* \|`),
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		found := quoted.FindAllSubmatch(text, -1)
		for _, m := range found {
			what := string(m[1])
			if what != "word" && !strings.Contains(strings.ToLower(program), strings.ToLower(what)) {
				t.Errorf("%s: the program does not say %q", page, what)
			}
		}
		if len(found) < 15 {
			t.Errorf("%s: only %d are looked at", page, len(found))
		}
	}
}
