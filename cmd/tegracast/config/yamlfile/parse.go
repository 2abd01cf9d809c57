// SPDX-License-Identifier: Apache-2.0

// Package yamlfile reads a YAML file into a struct, strictly. An unknown key, a missing key, and a value of the wrong
// type or outside its limits are each an *Error with file, line, column and a remedy.
//
// The struct's tags define the rules: yaml (key; required unless it has omitempty), jsonschema (minimum, maximum,
// minItems, enum) and was (a key's former name, which is refused with a hint to the new one). The JSON Schema is made
// from the same tags. Anchors, aliases, tags, directives and a second document are refused.
package yamlfile

import (
	"bytes"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
)

// byteOrderMark is the mark that some editors write at the start of UTF-8 text (YAML 1.2 §5.2).
const byteOrderMark = "\ufeff"

// lineBreaks replaces each kind of line break by a line feed (YAML 1.2 §5.4).
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Parse reads a file's text into the struct that into points to. path is the file's name in errors. Parse returns the
// whole file as a Section, for checks that tags cannot express. Every error is an *Error.
func Parse(path string, text []byte, into any) (root Section, err error) {
	d := &document{path: path}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return root, Whole(d.path).Errorf("the text is UTF-16: save it as UTF-8")
	}
	// The lexer counts a line twice that ends with CR and LF.
	plain := lineBreaks.Replace(strings.TrimPrefix(string(text), byteOrderMark))
	if err := d.checkEncoding(plain); err != nil {
		return root, err
	}
	tokens := lexer.Tokenize(plain)
	if err := d.checkShape(tokens); err != nil {
		return root, err
	}
	if d.tree, err = parser.Parse(tokens, 0); err != nil {
		return root, d.located(err)
	}
	if err := d.checkTypes(reflect.TypeOf(into).Elem()); err != nil {
		return root, err
	}
	if err := yaml.NodeToValue(d.tree.Docs[0].Body, into, yaml.Strict()); err != nil {
		return root, d.located(err)
	}
	return Section{d, "$"}, nil
}

// checkEncoding refuses a text that is not UTF-8, at the first byte that is not part of a character.
func (d *document) checkEncoding(text string) error {
	line := 0
	for l := range strings.SplitSeq(text, "\n") {
		line++
		for i, column := 0, 1; i < len(l); column++ {
			r, n := utf8.DecodeRuneInString(l[i:])
			if r == utf8.RuneError && n == 1 {
				return Place{file: d.path, line: line, column: column}.Errorf("the byte %#02x is not UTF-8: save the file as UTF-8", l[i])
			}
			i += n
		}
	}
	return nil
}
