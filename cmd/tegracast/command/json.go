// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"io"
)

// JSONVersion is the version of what the commands print with --json (docs/json.md). It rises when a key goes, or gets another meaning or
// unit; new keys do not raise it.
const JSONVersion = 1

// WriteJSON writes a struct as an indented object, with its version in front.
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
	_, err = w.Write(text.Bytes())
	return err
}
