// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTableNamesTests checks that each test function that the table names exists, and that each peer has a version.
func TestTableNamesTests(t *testing.T) {
	t.Chdir("..") // where the command runs
	for folder, names := range folders() {
		functions := map[string]bool{}
		files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is && f.Recv == nil {
					functions[f.Name.Name] = true
				}
			}
		}
		for _, name := range names {
			if !functions[name] {
				t.Errorf("%s has no %s", folder, name)
			}
		}
	}
	named := map[string]bool{}
	for _, r := range table {
		named[r.peer] = true
		if versions[r.peer] == "" {
			t.Errorf("%s has no version", r.peer)
		}
	}
	if len(named) != len(versions) {
		t.Errorf("%d peers, %d versions", len(named), len(versions))
	}
}

// TestPageHasTheTable checks that docs/peers.md has exactly the table's rows: peer, what is checked, and test.
func TestPageHasTheTable(t *testing.T) {
	t.Chdir("..")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, r := range sorted() {
		want = append(want, r.peer+" | "+r.what+" | "+r.folder+" `"+r.test+"` |\n")
	}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); len(cells) == 5 && line[0] == '|' {
			got = append(got, strings.TrimPrefix(cells[0], "| ")+" | "+cells[2]+" | "+cells[4])
		}
	}
	if got = got[min(1, len(got)):]; !slices.Equal(got, want) { // without the header
		t.Errorf("docs/peers.md is stale (make test-long-peers writes it): it has\n%s\nwant\n%s", strings.Join(got, ""), strings.Join(want, ""))
	}
}

// TestVerdicts checks the result of a row by those of the tests and subtests that it names.
func TestVerdicts(t *testing.T) {
	const in = `{"Action":"pass","Test":"TestGood/a"}
{"Action":"pass","Test":"TestGood"}
{"Action":"output","Test":"TestMixed/a/b","Output":"    x_test.go:7: NEEDS /dev/fuse | more\n"}
{"Action":"skip","Test":"TestMixed/a/b"}
{"Action":"pass","Test":"TestMixed/a"}
{"Action":"fail","Test":"TestMixed/c"}
{"Action":"fail","Test":"TestMixed"}
{"Action":"output","Test":"TestAway","Output":"    x_test.go:7: NEEDS root\n"}
{"Action":"skip","Test":"TestAway"}
`
	results := read(strings.NewReader(in), "pipeline", t.Output())
	for test, want := range map[string]string{
		"TestGood": "pass", "TestGood/a": "pass", "TestGood/b": "FAIL", "TestMixed": "FAIL", "TestMixed/a": `not run: NEEDS … \| more`,
		"TestMixed/c": "FAIL", "TestAway": "not run: NEEDS root", "TestAway/a": "not run: NEEDS root", "TestGone": "FAIL", "TestGo": "FAIL",
	} {
		if got := verdict(results, test); got != want {
			t.Errorf("%s: %s, want %s", test, got, want)
		}
	}
}
