// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"testing"
	"unicode"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "front-left 1 µs": "front-left 1 µs", "a\x1b[2Jb\a": "a?[2Jb?", "one\ntwo\t\r": "one?two??", "\u009b31m": "?31m", "a\xffb": "a?b",
		"\u202egnp.exe": "?gnp.exe",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"v=0\r\ns=\x1b]0;x\a\r\n": "v=0\r\ns=?]0;x?\r\n", "a\n\tb": "a\n\tb", "honest\rHIDDEN": "honest?HIDDEN", "end\r": "end?", "\n\n": "\n\n",
	} {
		if got := Lines(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzPrintable checks that the result contains nothing that moves a cursor, for any text.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[2J\r\nb\t\x9b")
	f.Fuzz(func(t *testing.T, text string) {
		if got := Text(text); strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", got)
		}
		lines := Lines(text)
		plain := strings.NewReplacer("\r\n", "", "\n", "", "\t", "").Replace(lines)
		if strings.ContainsFunc(plain, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Count(lines, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q becomes %q", text, lines)
		}
	})
}
