// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// module is the prefix of the main module's packages.
const module = "github.com/tegracast/tegracast/"

// root returns the folder of the main module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// target returns the go command's environment for building for an architecture.
func target(arch string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
}

// output returns the output of a command that is run in the main module.
func output(t *testing.T, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = root(t), env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return out
}

// needed returns the packages that a package of the main module needs, and itself.
func needed(t *testing.T, arch, path string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for p := range strings.FieldsSeq(string(output(t, target(arch), "go", "list", "-deps", module+path))) {
		all[p] = true
	}
	return all
}

// load returns packages of the main module, or all of them without a pattern, as built for an architecture, without
// tests.
func load(t *testing.T, arch string, patterns ...string) []*packages.Package {
	t.Helper()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	key := arch + " " + strings.Join(patterns, " ")
	if all, known := loaded[key]; known {
		return all
	}
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
		Dir:  root(t),
		Env:  target(arch),
	}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	if packages.PrintErrors(all) > 0 {
		t.Fatal("the tree does not compile")
	}
	loaded[key] = all
	return all
}

// loaded caches load's results by its arguments.
var loaded = map[string][]*packages.Package{}

// forTests reports whether a package of the main module is for tests, by its name: cudatest, kmodtest/guest. The virtual
// Jetson is for tests, too, but the programs in its folder are not.
func forTests(path string) bool {
	if path = strings.TrimPrefix(path, module); path == "board/vjetson" {
		return true
	}
	for name := range strings.SplitSeq(path, "/") {
		if strings.HasSuffix(name, "test") {
			return true
		}
	}
	return false
}
