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
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// target returns the environment in which the go command builds for an architecture.
func target(arch string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
}

// output returns what a command, run in the main module, prints.
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

// load returns packages of the main module, all if there is no pattern, as they are built for an architecture, without tests.
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

// loaded are the packages that load has loaded, by its arguments.
var loaded = map[string][]*packages.Package{}

// forTests reports whether a package of the main module is for tests. Its name says so: cudatest, kmodtest/guest. The
// virtual Jetson is for tests, too; the programs that stand in its folder are programs.
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
