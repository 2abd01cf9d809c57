// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// harness lists packages for tests whose names do not say so.
var harness = map[string]string{
	"board/vjetson":          "the virtual Jetson, as make and the pages call it",
	"board/vjetson/channel":  "a part of the virtual Jetson",
	"fpga/vfiouser":          "a protocol's name; it gives the virtual Jetson a card",
	"fpga/vfiouser/endpoint": "the FPGA model as that card",
}

// testCommands lists the programs that exist for tests, and so may import what is for tests.
var testCommands = map[string]string{
	"board/vjetson/agent": "runs in the virtual Jetson",
	"board/vjetson/boot":  "boots the virtual Jetson: make vjetson",
}

// showsNothing lists packages for tests that stand for nothing.
var showsNothing = map[string]string{
	"tegra/kmod/kmodtest/errnos": "a list",
}

// isScaffolding reports whether a package belongs to the main module and is for tests.
func isScaffolding(path string) bool {
	name, ours := strings.CutPrefix(path, module)
	return ours && (forTests(path) || harness[name] != "")
}

// TestScaffoldingIsForTests checks that a package that the program does not contain is for tests, as its name or
// harness says; that only tests, other such packages and testCommands import it; and that its doc.go says what it does
// not show.
func TestScaffoldingIsForTests(t *testing.T) {
	const arch = "arm64"
	in, found := needed(t, arch, "cmd/tegracast"), 0
	for _, p := range load(t, arch) {
		name := strings.TrimPrefix(p.PkgPath, module)
		onlyTests := len(p.GoFiles) == 1 && filepath.Base(p.GoFiles[0]) == "doc.go"
		switch scaffolding := isScaffolding(p.PkgPath); {
		case scaffolding && in[p.PkgPath]:
			t.Errorf("%s is for tests, and the program contains it", name)
		case scaffolding && p.Name != "main" && !onlyTests:
			found++
			if !strings.Contains(comment(p), "not show") && showsNothing[name] == "" {
				t.Errorf("%s: write a doc.go that says what the package stands for, and what it does not show", name)
			}
		case !scaffolding && !in[p.PkgPath] && p.Name != "main" && !onlyTests:
			t.Errorf("%s: no program needs it: let its name end with test, or list it in harness", name)
		}
		for path := range p.Imports {
			if isScaffolding(path) && !isScaffolding(p.PkgPath) && testCommands[name] == "" {
				t.Errorf("%s imports %s, which is for tests", name, strings.TrimPrefix(path, module))
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d packages for tests were found", found)
	}
}

// comment returns the text of a package's doc.go on one line.
func comment(p *packages.Package) string {
	for _, f := range p.Syntax {
		if filepath.Base(p.Fset.Position(f.Pos()).Filename) == "doc.go" {
			return strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
	}
	return ""
}
