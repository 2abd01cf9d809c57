// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// JSONVersion is the version of the output of --json (docs/json.md). It increases when a key is removed or changes its
// meaning or unit, but not for new keys.
const JSONVersion = 1

// WriteJSON writes a struct as an indented JSON object whose first key is "version" (JSONVersion).
func WriteJSON(w io.Writer, v any) error {
	var object, text bytes.Buffer
	enc := json.NewEncoder(&object)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	head, err := json.Marshal(map[string]int{"version": JSONVersion})
	if err != nil {
		return err
	}
	head[len(head)-1] = ','
	if err := json.Indent(&text, append(head, object.Bytes()[1:]...), "", "  "); err != nil {
		return err
	}
	_, err = io.WriteString(w, escaped(text.String()))
	return err
}

// escaped replaces unprintable characters in an object's texts by \u escapes (RFC 8259 §7). encoding/json leaves some of
// them, which a terminal would take for commands.
func escaped(object string) string {
	var b strings.Builder
	for _, r := range object {
		if r < 0x7f || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
