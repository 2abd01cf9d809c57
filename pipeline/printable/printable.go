// SPDX-License-Identifier: Apache-2.0

// Package printable makes text from foreign files and other machines safe to write to a terminal.
package printable

import (
	"strings"
	"unicode"
)

// Text returns a text on one line. It replaces each unprintable character, such as the escape that begins a terminal's
// control sequences (ECMA-48 §5.3), by '?'.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Lines is Text for several lines. It keeps tabs and line ends (LF, CR LF).
func Lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		content, end := strings.CutSuffix(line, "\n")
		if end {
			content = strings.TrimSuffix(content, "\r")
		}
		for i, field := range strings.Split(content, "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(Text(field))
		}
		b.WriteString(line[len(content):])
	}
	return b.String()
}
