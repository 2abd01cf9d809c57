// SPDX-License-Identifier: Apache-2.0

package headertest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Output compiles the C file source, which includes the header, runs the program and returns its output. options are
// passed to gcc.
func Output(t testing.TB, source string, options ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("gcc", append(options, "-o", program, source)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
