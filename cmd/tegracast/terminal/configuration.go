// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
)

// A Section lists the keys of an object in the configuration.
type Section struct {
	Path string // such as outputs[].rtp; empty: the top level
	Keys []Key
}

// A Key is a key of a Section. Kind describes its values.
type Key struct{ Name, Kind, Text string }

// Sections returns the keys that a JSON Schema of the configuration defines, with one Section for each object: first
// the top level, and each object before those in it.
func Sections(schema []byte) ([]Section, error) {
	root := &jsonschema.Schema{}
	if err := json.Unmarshal(schema, root); err != nil {
		return nil, fmt.Errorf("schema of the configuration: %w", err)
	}
	return sections(root, root, ""), nil
}

func sections(root, object *jsonschema.Schema, path string) []Section {
	own := Section{Path: path}
	var inside []Section
	for p := object.Properties.Oldest(); p != nil; p = p.Next() {
		kind := kindOf(root, p.Value)
		if slices.Contains(object.Required, p.Key) {
			kind += ", required"
		}
		own.Keys = append(own.Keys, Key{p.Key, kind, p.Value.Description})
		if inner, isList := objectIn(root, p.Value); inner != nil {
			below := path + "." + p.Key
			if isList {
				below += "[]"
			}
			inside = append(inside, sections(root, inner, strings.TrimPrefix(below, "."))...)
		}
	}
	return append([]Section{own}, inside...)
}

// Configuration writes tegracast.yaml(5): every key in the JSON Schema, and an example.
func Configuration(w io.Writer, b Build, schema []byte, example string) error {
	list, err := Sections(schema)
	if err != nil {
		return err
	}
	r := &roff{}
	r.head("tegracast.yaml", 5, b)
	r.section("Name")
	r.WriteString("tegracast.yaml \\- configuration of tegracast\n")
	r.section("Description")
	r.WriteString("The configuration of\n.BR tegracast (1)\nis a file in YAML. The service reads\n.IR /etc/tegracast/tegracast.yaml .\n")
	r.paragraphs(Rules)
	r.section("Keys")
	for _, s := range list {
		r.subsection(cmp.Or(s.Path, "Top level"))
		for _, k := range s.Keys {
			r.item(k.Name, k.Kind, k.Text)
		}
	}
	r.section("Example")
	r.lines(example)
	r.section("See also")
	r.WriteString(".BR tegracast (1)\n")
	_, err = io.WriteString(w, r.String())
	return err
}

// Rules is the text about what applies to all keys of a configuration.
const Rules = "A key that is not known, a value of a wrong type, and what cannot work are refused with line and column. " +
	"tegracast config default prints an example, tegracast config check FILE looks for mistakes, and systemctl reload tegracast has the " +
	"service read the file again.\n\nA source has exactly one of the keys that say what it is, such as fpga or model, and so has an output, " +
	"such as rtp or record. Times are written as 500us, 20ms or 1m30s, sizes as 64MiB, rates as 30 or 30000/1001."

// objectIn returns the schema of the object that s describes, or of the objects in the list that s describes, or nil if
// there is none.
func objectIn(root, s *jsonschema.Schema) (object *jsonschema.Schema, isList bool) {
	if s.Items != nil {
		object, _ = objectIn(root, s.Items)
		return object, true
	}
	if s = resolved(root, s); s.Properties != nil && s.Properties.Len() > 0 {
		return s, false
	}
	return nil, false
}

// resolved returns the definition to which s refers, or s if it is no reference.
func resolved(root, s *jsonschema.Schema) *jsonschema.Schema {
	if d, ok := root.Definitions[strings.TrimPrefix(s.Ref, "#/$defs/")]; ok {
		return d
	}
	return s
}

// kindOf describes the values that a schema allows.
func kindOf(root, s *jsonschema.Schema) string {
	s = resolved(root, s)
	switch {
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, w := range s.Enum {
			words[i] = fmt.Sprint(w)
		}
		return strings.Join(words, " | ")
	case len(s.OneOf) > 0:
		kinds := make([]string, len(s.OneOf))
		for i, one := range s.OneOf {
			kinds[i] = kindOf(root, one)
		}
		return strings.Join(slices.Compact(kinds), " or ")
	case s.Type == "array" && s.Items != nil:
		return "list of " + kindOf(root, s.Items)
	case s.Type == "object" && s.Properties.Len() == 0:
		return "map"
	case s.Minimum != "" && s.Maximum != "":
		return fmt.Sprintf("%s from %s to %s", s.Type, s.Minimum, s.Maximum)
	case s.Type == "":
		return "value"
	}
	return s.Type
}
