// SPDX-License-Identifier: Apache-2.0

// Package headertest lets tests compare what Go passes to a C library with the library's header.
package headertest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Output compiles a C file, which includes the header, and returns what the program prints. options are gcc's.
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
