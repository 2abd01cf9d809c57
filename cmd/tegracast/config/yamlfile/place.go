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

// An Error is a mistake in the configuration, or a configuration that does not work on this machine. If it concerns a
// part of the file, its text begins with file, line and column. All returns the Error together with further mistakes in
// the same file.
type Error struct {
	Err  error
	At   Place // zero: no place, as for a file that cannot be read
	more []*Error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// All returns the mistakes that were found together, in the order of the file.
func (e *Error) All() []*Error {
	all := append([]*Error{e}, e.more...)
	slices.SortStableFunc(all, func(a, b *Error) int {
		return (a.At.line-b.At.line)*(1<<16) + a.At.column - b.At.column
	})
	return all
}

// Join returns the first of these errors with the others attached, or nil if there is none. If one of them is not an
// *Error, Join returns that one alone.
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

// Mistake is one mistake in a configuration, in a form for programs.
type Mistake struct {
	Line    int    `json:"line"`    // from 1; 0: the file cannot be read
	Column  int    `json:"column"`  // from 1; 0: the file cannot be read
	Key     string `json:"key"`     // such as `outputs[0].rtp.mtu`, or empty
	Message string `json:"message"` // place, mistake and remedy
}

// Mistake returns e in a form for programs, without further mistakes.
func (e *Error) Mistake() Mistake {
	line, column, key := e.At.Position()
	return Mistake{line, column, key, e.Error()}
}

// A Place is the position of a part of a configuration.
type Place struct {
	file         string
	line, column int
	path         string // such as outputs[0].rtp.mtu; empty: not the place of a key
}

// Errorf returns an *Error whose text is "FILE:LINE:COLUMN: PATH: " and the message. Like fmt.Errorf, it wraps the
// operand of %w.
func (p Place) Errorf(format string, a ...any) error {
	return &Error{Err: p.Located(fmt.Errorf(format, a...)), At: p}
}

// Position returns the line and the column, counted from 1, and the path of the key, such as outputs[0].rtp.mtu. The
// path is "" if the place is not that of a key. For the zero Place, line and column are 0.
func (p Place) Position() (line, column int, path string) { return p.line, p.column, p.path }

// Located returns err with the place in front of its text. Unlike Errorf, it is for errors that are not mistakes in the
// configuration, such as a GPIO line in use.
func (p Place) Located(err error) error {
	head := fmt.Sprintf("%s:%d:%d: ", p.file, p.line, p.column)
	if p.path != "" {
		head += p.path + ": "
	}
	return fmt.Errorf("%s%w", head, err)
}

// document is a parsed configuration file.
type document struct {
	path string
	tree *ast.File
}

// Whole returns the place for mistakes that concern a whole file: line 1, column 1.
func Whole(path string) Place { return Place{file: path, line: 1, column: 1} }

// At returns the place of a key in a line of a file.
func At(file string, line int, path string) Place { return Place{file, line, 1, path} }

// at returns the place of a node of the tree. path is the node's path, such as $.outputs[0].
func (d *document) at(node ast.Node, path string) Place {
	p := position(node)
	return Place{d.path, p.Line, p.Column, strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")}
}

// position returns where a node begins for a human reader: a map without braces begins at its first key.
func position(node ast.Node) *token.Position {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return position(m.Values[0].Key)
	}
	if v, ok := node.(*ast.MappingValueNode); ok {
		return position(v.Key)
	}
	return node.GetToken().Position
}

// A Section is a part of the file being checked: the value of a key, or an element of a list.
type Section struct {
	doc  *document
	path string // YAML path such as $.outputs[0].rtp
}

// Key returns the section that is the value of a key.
func (s Section) Key(name string) Section { return Section{s.doc, s.path + "." + name} }

// Element returns the section that is an element of a list.
func (s Section) Element(i int) Section { return Section{s.doc, fmt.Sprintf("%s[%d]", s.path, i)} }

// Name returns the section's name in messages.
func (s Section) Name() string { return strings.TrimPrefix(s.path, "$.") }

// Place returns the section's place. A section that is not in the file has the line and the column of its nearest
// ancestor that is, or line 1 and column 1 if none is.
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

// Errorf returns an error at the section's place. See Place.Errorf.
func (s Section) Errorf(format string, a ...any) error { return s.Place().Errorf(format, a...) }

// parentPath removes the last part of a YAML path.
func parentPath(p string) string {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '.' || p[i] == '[' {
			return p[:i]
		}
	}
	return ""
}
