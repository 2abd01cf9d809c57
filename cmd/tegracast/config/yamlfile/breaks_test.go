// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"strings"
	"testing"
)

// TestLineBreaks checks that errors have the same line and column, and values the same text, whichever kind of line break
// the file has.
func TestLineBreaks(t *testing.T) {
	for name, tt := range map[string]struct{ text, says, note string }{
		"comments":    {"# one\n# two\nnote: a\nbad: 1\n", `f:4:1: unknown key "bad"`, ""},
		"empty lines": {"note: a # b\n\n# c\n\n\nbad: 1\n", `f:6:1: unknown key "bad"`, ""},
		"quoted text": {"note: \"a\n  b\"\nbad: 1\n", `f:3:1: unknown key "bad"`, ""},
		"tab":         {"note:\n\ta\n", "f:2:1: a tab indents this line", ""},
		"folded":      {"note: \"a\n  b\"\n", "", "a b"},
	} {
		for breaks, with := range map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r"} {
			var into struct {
				Note string `yaml:"note"`
			}
			_, err := Parse("f", []byte(strings.ReplaceAll(tt.text, "\n", with)), &into)
			switch {
			case tt.says == "" && (err != nil || into.Note != tt.note):
				t.Errorf("%s, %s: %q, %v, want %q", name, breaks, into.Note, err, tt.note)
			case tt.says != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.says)):
				t.Errorf("%s, %s: %v, want %s", name, breaks, err, tt.says)
			}
		}
	}
}
