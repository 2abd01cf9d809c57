// SPDX-License-Identifier: Apache-2.0

// Package yamlfile reads a YAML file into a struct, strictly: a key that the struct does not have, a missing one, a value of
// another type or outside its limits is an *Error with file, line and column, and with what to do.
//
// The rules stand in the struct's tags, from which the JSON Schema is made, too: yaml (key; without omitempty it must be
// there), jsonschema (minimum, maximum, minItems, enum) and was (a key's former name, which is refused with the new one).
// Anchors, aliases, tags, directives and a second document are not read.
package yamlfile

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
)

// byteOrderMark is what some editors begin a text of UTF-8 with (YAML 1.2 §5.2).
const byteOrderMark = "\ufeff"

// Parse reads a file's text into the struct that into points to. path is what errors call the file. It returns the whole
// file as a Section, for the checks that the tags cannot say. Every error is an *Error.
func Parse(path string, text []byte, into any) (root Section, err error) {
	d := &document{path: path}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return root, Whole(d.path).Errorf("the text is UTF-16: save it as UTF-8")
	}
	tokens := lexer.Tokenize(strings.TrimPrefix(string(text), byteOrderMark))
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
