// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// word matches an instruction as in kernels_arm64.s and similar files: a number, with its meaning in the comment.
var word = regexp.MustCompile(`\bWORD \$0x([0-9a-f]{8}) (?:// (.+)|/\* (.+?) \*/.*)$`)

// TestTheWordsOfARM64AreTheirComments assembles the comment next to each WORD and compares the two.
func TestTheWordsOfARM64AreTheirComments(t *testing.T) {
	as, err := exec.LookPath("aarch64-linux-gnu-as")
	if err != nil {
		t.Skip("NEEDS aarch64-linux-gnu-as, without which no word of NEON is checked: apt-get install gcc-aarch64-linux-gnu")
	}
	files, err := filepath.Glob("*_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	words := 0
	for _, name := range files {
		words += assembled(t, as, name)
	}
	if words < 400 {
		t.Errorf("%d words in %v: where are the others?", words, files)
	}
}

// assembled checks the words of a file and returns their number.
func assembled(t *testing.T, as, name string) int {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	var wants []uint32
	var at []int
	for i, line := range lines {
		m := word.FindStringSubmatch(line)
		if m == nil && strings.Contains(line, "WORD") {
			t.Errorf("%s:%d: %s: want WORD $0x and 8 digits, and the instruction as a comment", name, i+1, line)
		}
		lines[i] = "" // keeps the assembler's line numbers equal to those of name
		if m == nil {
			continue
		}
		want, _ := strconv.ParseUint(m[1], 16, 32)
		wants, at = append(wants, uint32(want)), append(at, i)
		lines[i] = m[2] + m[3]
	}
	code := assemble(t, as, ".arch armv8-a\n# 1 \""+name+"\"\n"+strings.Join(lines, "\n"))
	if len(code) != 4*len(wants) {
		t.Fatalf("%s: %d words, and their comments are %d bytes of code", name, len(wants), len(code))
	}
	for i, want := range wants {
		if is := binary.LittleEndian.Uint32(code[4*i:]); is != want {
			t.Errorf("%s:%d: WORD $%#08x, and %q is %#08x", name, at[i]+1, want, lines[at[i]], is)
		}
	}
	return len(wants)
}

// assemble returns the machine code of a source.
func assemble(t *testing.T, as, source string) []byte {
	t.Helper()
	object := filepath.Join(t.TempDir(), "words.o")
	run := exec.CommandContext(t.Context(), as, "-o", object, "-")
	run.Stdin = strings.NewReader(source)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, bytes.TrimSpace(out))
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	return code
}
