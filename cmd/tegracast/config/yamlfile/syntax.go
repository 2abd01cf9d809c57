// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
)

// syntaxes maps the YAML library's messages about invalid text to messages for users.
var syntaxes = []struct{ library, own string }{
	{"end character of double-quoted", `the " that begins here does not end: write another one behind the text`},
	{"end character of single-quoted", "the ' that begins here does not end: write another one behind the text"},
	{"',' or '}' must be", "a , is missing in front of this, or a } in the lines before"},
	{"',' or ']' must be", "a , is missing in front of this, or a ] in the lines before"},
	{"token ']' not found", "the [ that begins here does not end: write ] behind the list"},
	{"end token '}'", "the { that begins here does not end: write } behind the keys"},
	{"'[' character corresponding", "there is no [ in front of this ]: leave it out"},
	{"'{' character corresponding", "there is no { in front of this }: leave it out"},
	{"found character '\t'", "a tab indents this line: indent with spaces"},
	{"is a reserved character", "no text begins with this character: put it in quotes"},
	{"unexpected key name", "a : and a space are missing behind the key"},
	{"non-map value is specified", "a : and a space are missing behind the key"},
	{"mapping value is not allowed", "a second : in this line, or a line below is indented too far: put a text with : in quotes, or indent as above"},
	{"not allowed in this context", "this does not belong here: indent it as the lines above, or look for a missing quote or bracket in them"},
}

// plain returns a message for users in place of the YAML library's, or the library's if syntaxes has none for it. The
// message includes the first line of text, which it concerns, unless that is empty.
func plain(message, text string) string {
	text = strings.Trim(text, "\n\t ")
	text, _, _ = strings.Cut(text, "\n")
	for _, s := range syntaxes {
		if text == "" && strings.Contains(message, s.library) {
			return s.own
		} else if strings.Contains(message, s.library) {
			return quote(text) + ": " + s.own
		}
	}
	if what := quote(text); !strings.Contains(message, what) {
		return what + ": " + message
	}
	return message
}

// located adds a place to an error of the YAML library.
func (d *document) located(err error) error {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return Whole(d.path).Errorf("%w", err)
	}
	p := y.GetToken().Position
	return Place{file: d.path, line: p.Line, column: p.Column}.Errorf("%s", plain(y.GetMessage(), y.GetToken().Value))
}
