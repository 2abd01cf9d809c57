// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// field describes a value as the configuration's structs define it: its key, its type, and the rules in its jsonschema
// tag. The schema is made from the same tags.
type field struct {
	key      string
	was      string // the key's former name; empty: none
	kind     reflect.Type
	required bool
	rules    map[string][]string // minimum, maximum, minItems, enum
}

// fieldsOf lists the keys of a struct in order, including those of embedded structs.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		if f.Anonymous {
			out = append(out, fieldsOf(f.Type)...)
			continue
		}
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		next := field{key: key, was: f.Tag.Get("was"), kind: f.Type, required: options != "omitempty", rules: map[string][]string{}}
		for rule := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
			name, value, _ := strings.Cut(rule, "=")
			next.rules[name] = append(next.rules[name], value)
		}
		out = append(out, next)
	}
	return out
}

// limits returns the minimum and the maximum, which are infinite if there are none, and the words for them in a
// message.
func (f field) limits() (low, high float64, text string) {
	low, high = math.Inf(-1), math.Inf(1)
	least, most := f.rules["minimum"], f.rules["maximum"]
	if least != nil {
		low, _ = strconv.ParseFloat(least[0], 64)
		text = " from " + least[0] + " on"
	}
	if most != nil {
		high, _ = strconv.ParseFloat(most[0], 64)
		text = " up to " + most[0]
	}
	if least != nil && most != nil {
		text = " from " + least[0] + " to " + most[0]
	}
	return low, high, text
}

// checkTypes walks the file together with the struct into which it will be read, and refuses what the struct's types
// and tags do not allow.
func (d *document) checkTypes(into reflect.Type) error {
	docs := d.tree.Docs
	if len(docs) == 0 || docs[0].Body == nil {
		return Whole(d.path).Errorf("there is nothing in it: write one with `tegracast config default`")
	}
	if directive, ok := docs[0].Body.(*ast.DirectiveNode); ok {
		return d.refuse(directive, "$", "directives are not read: leave the line out")
	}
	if len(docs) > 1 {
		at := docs[1].Start.Position
		second := Place{file: d.path, line: at.Line, column: at.Column}
		return second.Errorf("a second document begins here: one file is one configuration: leave out --- and what follows")
	}
	return d.walk(docs[0].Body, "$", field{key: "configuration", kind: into})
}

// refuse returns an error at a node.
func (d *document) refuse(node ast.Node, path, format string, a ...any) error {
	return d.at(node, path).Errorf(format, a...)
}

func (d *document) walk(node ast.Node, path string, f field) error {
	if f.kind.Kind() == reflect.Pointer {
		f.kind = f.kind.Elem()
	}
	switch node.(type) {
	case *ast.TagNode:
		return d.refuse(node, path, "tags such as %s are not read: leave it out", node.GetToken().Value)
	case *ast.AnchorNode, *ast.AliasNode:
		return d.refuse(node, path, "anchors (&) and aliases (*) are not read: write the value itself")
	case *ast.NullNode:
		return d.refuse(node, path, "there is no value: give one, or leave the key out")
	}
	if w, ok := reflect.New(f.kind).Interface().(yaml.NodeUnmarshaler); ok {
		return d.walkWord(node, path, f, w)
	}
	switch f.kind.Kind() {
	case reflect.Struct, reflect.Map:
		return d.walkMap(node, path, f)
	case reflect.Slice, reflect.Array:
		return d.walkList(node, path, f)
	case reflect.String:
		return d.walkText(node, path, f)
	case reflect.Bool:
		if _, ok := node.(*ast.BoolNode); !ok {
			return d.refuse(node, path, "%s: must be true or false%s", name(node), unquoted(node))
		}
		return nil
	}
	return d.walkNumber(node, path, f)
}

// quote returns a text of the file in quotes, shortened to fit on a line.
func quote(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		return strconv.Quote(string(r[:most])) + "..."
	}
	return strconv.Quote(text)
}

// name returns the word for a node in messages.
func name(node ast.Node) string {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	case *ast.LiteralNode:
		return "a block of text"
	}
	return quote(node.GetToken().Value)
}

func (d *document) walkWord(node ast.Node, path string, f field, w yaml.NodeUnmarshaler) error {
	if _, ok := node.(ast.ScalarNode); !ok || name(node)[0] != '"' {
		return d.refuse(node, path, "%s: must be one word", name(node))
	}
	if n, ok := node.(*ast.IntegerNode); ok && !decimal.MatchString(n.GetToken().Value) {
		return d.refuse(node, path, "%s: write the number in plain decimal digits", name(node))
	}
	if err := w.UnmarshalYAML(node); err != nil {
		message := err.Error()
		var y yaml.Error
		if errors.As(err, &y) {
			message = y.GetMessage()
		}
		return d.refuse(node, path, "%s", strings.TrimPrefix(message, f.key+" "))
	}
	return nil
}

// walkMap checks the keys and values of a struct, or of a map from names to numbers.
func (d *document) walkMap(node ast.Node, path string, f field) error {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return d.refuse(node, path, "%s: must be a map of keys and values", name(node))
	}
	var known []field
	if f.kind.Kind() == reflect.Struct {
		known = fieldsOf(f.kind)
	}
	seen, unknown := map[string]bool{}, false
	var errs []error
	for _, v := range values {
		key := v.Key.GetToken().Value
		_, text := v.Key.(*ast.StringNode)
		below := field{key: key, kind: f.kind}
		if i := slices.IndexFunc(known, func(k field) bool { return k.key == key }); text && i >= 0 {
			below = known[i]
		} else if i := slices.IndexFunc(known, func(k field) bool { return k.was == key }); text && i >= 0 {
			errs, seen[known[i].key] = append(errs, d.refuse(v.Key, path, "the key %s is called %s now", key, known[i].key)), true
			continue
		} else if known != nil || !text {
			errs, unknown = append(errs, d.refuse(v.Key, path, "unknown key %q; known here are %s", key, keys(known))), true
			continue
		} else {
			below.kind = f.kind.Elem()
		}
		seen[key] = true
		errs = append(errs, d.walk(v.Value, path+"."+key, below))
	}
	for _, k := range known {
		if k.required && !seen[k.key] && !unknown { // an unknown key may be this one misspelt
			errs = append(errs, d.refuse(node, path, "the key %s is missing; known here are %s", k.key, keys(known)))
		}
	}
	return Join(errs...)
}

func keys(known []field) string {
	var s []string
	for _, k := range known {
		s = append(s, k.key)
	}
	if s == nil {
		return "names"
	}
	return strings.Join(s, ", ")
}

func (d *document) walkList(node ast.Node, path string, f field) error {
	n, ok := node.(*ast.SequenceNode)
	if !ok {
		return d.refuse(node, path, "%s: must be a list: write [ ] around it, or - before each", name(node))
	}
	if f.rules["minItems"] != nil && len(n.Values) == 0 { // no list here requires more than one element
		return d.refuse(node, path, "there must be at least one")
	}
	if f.kind.Kind() == reflect.Array && len(n.Values) != f.kind.Len() {
		return d.refuse(node, path, "a list of %d: must have %d", len(n.Values), f.kind.Len())
	}
	below := field{key: f.key, kind: f.kind.Elem(), rules: map[string][]string{"minimum": f.rules["minimum"], "maximum": f.rules["maximum"]}}
	var errs []error
	for i, v := range n.Values {
		errs = append(errs, d.walk(v, fmt.Sprintf("%s[%d]", path, i), below))
	}
	return Join(errs...)
}

func (d *document) walkText(node ast.Node, path string, f field) error {
	s, ok := node.(*ast.StringNode)
	if _, scalar := node.(ast.ScalarNode); scalar && !ok && name(node)[0] == '"' {
		return d.refuse(node, path, "%s is read as something else than text: put it in quotes", node.GetToken().Value)
	}
	if !ok {
		return d.refuse(node, path, "%s: must be text in one line", name(node))
	}
	if words := f.rules["enum"]; words != nil && !slices.Contains(words, s.Value) {
		last := len(words) - 1
		return d.refuse(node, path, "%q: use %s or %s", s.Value, strings.Join(words[:last], ", "), words[last])
	}
	return nil
}

// decimal matches whole numbers that YAML 1.1, YAML 1.2 and JSON read alike. YAML 1.1 reads 010 as eight.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// unquoted returns a hint to leave the quotes out, or "" if the value has none.
func unquoted(node ast.Node) string {
	if s, text := node.(*ast.StringNode); text && s.Token.Type != token.StringType {
		return ", without quotes"
	}
	return ""
}

func (d *document) walkNumber(node ast.Node, path string, f field) error {
	low, high, limits := f.limits()
	what := "a whole number"
	if f.kind.Kind() == reflect.Float64 {
		what = "a number such as 1.5"
	}
	bad := func() error {
		hint := unquoted(node)
		if _, integer := node.(*ast.IntegerNode); integer {
			hint = ", in plain decimal digits"
		}
		return d.refuse(node, path, "%s: must be %s%s%s", name(node), what, limits, hint)
	}
	switch n := node.(type) {
	case *ast.IntegerNode:
		s := n.GetToken().Value
		if !decimal.MatchString(s) {
			return bad()
		}
		v, err := strconv.ParseFloat(s, 64)
		if f.kind.Kind() == reflect.Uint64 {
			low = max(low, 0)
		} else if f.kind.Kind() == reflect.Int {
			high = min(high, math.MaxInt32)
		}
		if err != nil || v < low || v > high {
			return d.refuse(node, path, "%s: must be %s%s", s, what, limits)
		}
	case *ast.FloatNode:
		if f.kind.Kind() != reflect.Float64 {
			return bad()
		}
		if n.Value < low || n.Value > high {
			return d.refuse(node, path, "%s: must be %s%s", n.GetToken().Value, what, limits)
		}
	default:
		return bad()
	}
	return nil
}
