// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
)

// Configuration writes tegracast.yaml(5): every key that the JSON Schema has, and an example.
func Configuration(w io.Writer, b Build, schema []byte, example string) error {
	root := &jsonschema.Schema{}
	if err := json.Unmarshal(schema, root); err != nil {
		return fmt.Errorf("schema of the configuration: %w", err)
	}
	r := &roff{}
	r.head("tegracast.yaml", 5, b)
	r.section("Name")
	r.WriteString("tegracast.yaml \\- configuration of tegracast\n")
	r.section("Description")
	r.WriteString("The configuration of\n.BR tegracast (1)\nis a file in YAML. The service reads\n.IR /etc/tegracast/tegracast.yaml .\n")
	r.paragraphs("A key that is not known, a value of a wrong type, and what cannot work are refused with line and column. " +
		"tegracast config default prints an example, tegracast config check FILE looks for mistakes, and systemctl reload tegracast has the " +
		"service read the file again.\n\nA source has exactly one of the keys that say what it is, such as fpga or model, and so has an output, " +
		"such as rtp or record. Times are written as 500us, 20ms or 1m30s, sizes as 64MiB, rates as 30 or 30000/1001.")
	r.section("Keys")
	r.keys(root, root, "")
	r.section("Example")
	r.lines(example)
	r.section("See also")
	r.WriteString(".BR tegracast (1)\n")
	_, err := io.WriteString(w, r.String())
	return err
}

// keys lists those of an object, then those of the objects in them, each under its path.
func (r *roff) keys(root, object *jsonschema.Schema, path string) {
	name := path
	if name == "" {
		name = "Top level"
	}
	r.subsection(name)
	for p := object.Properties.Oldest(); p != nil; p = p.Next() {
		kind := kindOf(root, p.Value)
		if slices.Contains(object.Required, p.Key) {
			kind += ", required"
		}
		r.item(p.Key, kind, p.Value.Description)
	}
	for p := object.Properties.Oldest(); p != nil; p = p.Next() {
		if inner, isList := objectIn(root, p.Value); inner != nil {
			below := path + "." + p.Key
			if isList {
				below += "[]"
			}
			r.keys(root, inner, strings.TrimPrefix(below, "."))
		}
	}
}

// objectIn is the object that a value is, or that each element of it is; nil if it is none.
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

// resolved follows a reference to a definition.
func resolved(root, s *jsonschema.Schema) *jsonschema.Schema {
	if d, ok := root.Definitions[strings.TrimPrefix(s.Ref, "#/$defs/")]; ok {
		return d
	}
	return s
}

// kindOf says in words what a value may be.
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
