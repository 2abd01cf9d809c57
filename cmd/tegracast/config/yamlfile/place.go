// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// An Error is a mistake of the configuration, or a configuration that this machine cannot have. Its text begins with file,
// line and column where it is about a part of the file. Further mistakes of the same file are behind it (All).
type Error struct {
	Err  error
	At   Place // line 0: the file as a whole
	more []*Error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// All are the mistakes that were found at once, in the order of the file.
func (e *Error) All() []*Error {
	all := append([]*Error{e}, e.more...)
	slices.SortStableFunc(all, func(a, b *Error) int {
		return (a.At.line-b.At.line)*(1<<16) + a.At.column - b.At.column
	})
	return all
}

// Join is the first of these errors, with the others behind it; nil if there is none.
func Join(errs ...error) error {
	var first *Error
	for _, err := range errs {
		var e *Error
		switch {
		case err == nil:
		case !errors.As(err, &e):
			return err
		case first == nil:
			first = e
		default:
			first.more = append(append(first.more, e), e.more...)
		}
	}
	if first == nil {
		return nil
	}
	return first
}

// Mistake is one mistake of a configuration, for programs.
type Mistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key"`
	Message string `json:"message"`
}

// Mistake is the first of the mistakes.
func (e *Error) Mistake() Mistake {
	line, column, key := e.At.Position()
	return Mistake{line, column, key, e.Error()}
}

// A Place is where a part of a configuration stands.
type Place struct {
	file         string
	line, column int
	path         string // such as outputs[0].rtp.mtu; empty: the file as a whole
}

// Errorf returns an *Error whose text is "FILE:LINE:COLUMN: PATH: " and the message. Like fmt.Errorf it wraps the operand
// of %w.
func (p Place) Errorf(format string, a ...any) error {
	return &Error{Err: p.Located(fmt.Errorf(format, a...)), At: p}
}

// Position is the line and the column, from 1, and the path of the key, such as outputs[0].rtp.mtu; empty: the file as a whole.
func (p Place) Position() (line, column int, path string) { return p.line, p.column, p.path }

// Located puts the place in front of an error that is none of the configuration, such as that of a line that is in use.
func (p Place) Located(err error) error {
	head := fmt.Sprintf("%s:%d:%d: ", p.file, p.line, p.column)
	if p.path != "" {
		head += p.path + ": "
	}
	return fmt.Errorf("%s%w", head, err)
}

// document is the text of a configuration file.
type document struct {
	path string
	tree *ast.File
}

// Whole is the place of a file as a whole.
func Whole(path string) Place { return Place{file: path, line: 1, column: 1} }

// At is the place of a key in a line of a file.
func At(file string, line int, path string) Place { return Place{file, line, 1, path} }

// at is the place of a node of the tree; path is the node's, such as $.outputs[0].
func (d *document) at(node ast.Node, path string) Place {
	p := position(node)
	return Place{d.path, p.Line, p.Column, strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")}
}

// position is where a person would say that a node begins.
func position(node ast.Node) *token.Position {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return position(m.Values[0].Key)
	}
	if v, ok := node.(*ast.MappingValueNode); ok {
		return position(v.Key)
	}
	return node.GetToken().Position
}

// A Section is a part of the file while it is checked: a key, or an element of a list.
type Section struct {
	doc  *document
	path string // YAML path such as $.outputs[0].rtp
}

// Key is the value of a key.
func (s Section) Key(name string) Section { return Section{s.doc, s.path + "." + name} }

// Element is an element of a list.
func (s Section) Element(i int) Section { return Section{s.doc, fmt.Sprintf("%s[%d]", s.path, i)} }

// Name is what messages call the section.
func (s Section) Name() string { return strings.TrimPrefix(s.path, "$.") }

// Place is where the section stands. A key that the file does not have stands where the nearest part above it does.
func (s Section) Place() Place {
	for p := s.path; p != "$" && p != ""; p = parentPath(p) {
		yp, err := yaml.PathString(p)
		if err != nil {
			continue
		}
		if node, err := yp.FilterFile(s.doc.tree); err == nil && node != nil {
			return s.doc.at(node, s.path)
		}
	}
	p := Whole(s.doc.path)
	p.path = s.Name()
	return p
}

// Errorf is an error at the place of the section, as Place.Errorf.
func (s Section) Errorf(format string, a ...any) error { return s.Place().Errorf(format, a...) }

// parentPath cuts the last part off a YAML path.
func parentPath(p string) string {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '.' || p[i] == '[' {
			return p[:i]
		}
	}
	return ""
}
