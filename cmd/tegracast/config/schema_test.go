// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// descriptions collects the descriptions of all keys of kind and its fields, as "Struct.key". Keys of an embedded struct
// belong to owner.
func descriptions(t *testing.T, kind reflect.Type, owner string, found map[string]string) {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || !yamlfile.HasKeys(kind) {
		return
	}
	if owner == "" {
		owner = kind.Name()
	}
	for f := range kind.Fields() {
		if !f.IsExported() {
			continue
		}
		if f.Anonymous {
			descriptions(t, f.Type, owner, found)
			continue
		}
		at := owner + "." + yamlfile.Key(f)
		if _, seen := found[at]; seen {
			continue
		}
		if strings.Contains(f.Tag.Get("jsonschema"), "description=") {
			t.Errorf("%s: its description is cut at commas: give it the tag jsonschema_description", at)
		}
		found[at] = f.Tag.Get("jsonschema_description")
		descriptions(t, f.Type, "", found)
	}
}

// TestTheSchemaDescribesEveryKey checks that an editor that reads the schema shows the whole description of each key.
func TestTheSchemaDescribesEveryKey(t *testing.T) {
	type object struct {
		Properties map[string]struct{ Description string }
	}
	var out strings.Builder
	if err := WriteSchema(&out); err != nil {
		t.Fatal(err)
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(out.String()), &schema); err != nil {
		t.Fatal(err)
	}
	schema.Defs["File"] = schema.object
	want := map[string]string{}
	descriptions(t, reflect.TypeFor[File](), "", want)
	keys := 0
	for name, o := range schema.Defs {
		for key, p := range o.Properties {
			keys++
			at := name + "." + key
			switch {
			case !strings.HasSuffix(p.Description, "."):
				t.Errorf("%s: %q is not a sentence", at, p.Description)
			case p.Description != want[at]:
				t.Errorf("%s: the schema says %q, the struct %q", at, p.Description, want[at])
			}
		}
	}
	if keys != len(want) || keys < 100 {
		t.Errorf("the schema has %d keys, the structs %d", keys, len(want))
	}
}

// TestSchemaDefaults checks that the schema has the defaults that the descriptions state, and allows their values.
func TestSchemaDefaults(t *testing.T) {
	var buf bytes.Buffer
	if err := WriteSchema(&buf); err != nil {
		t.Fatal(err)
	}
	var s struct {
		Defs map[string]struct {
			Properties map[string]struct {
				Type, Pattern, Description string
				Enum                       []any
				Default                    any
				Minimum, Maximum           *float64
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(buf.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	found := 0
	for name, d := range s.Defs {
		for key, p := range d.Properties {
			if p.Default == nil {
				continue
			}
			found++
			if !strings.Contains(p.Description, fmt.Sprint(p.Default)) {
				t.Errorf("%s.%s: default %v, described as %q", name, key, p.Default, p.Description)
			}
			if p.Enum != nil && !slices.Contains(p.Enum, p.Default) {
				t.Errorf("%s.%s: default %v, which is none of %v", name, key, p.Default, p.Enum)
			}
			if text, is := p.Default.(string); p.Pattern != "" && (!is || !regexp.MustCompile(p.Pattern).MatchString(text)) {
				t.Errorf("%s.%s: default %v, which does not match %s", name, key, p.Default, p.Pattern)
			}
			n, is := p.Default.(float64)
			if (p.Type == "integer" || p.Type == "number") != is && p.Type != "" || is && (p.Minimum != nil && n < *p.Minimum || p.Maximum != nil && n > *p.Maximum) {
				t.Errorf("%s.%s: default %v of a %s from %v to %v", name, key, p.Default, p.Type, p.Minimum, p.Maximum)
			}
		}
	}
	if found < 50 {
		t.Errorf("%d defaults", found)
	}
}

// TestSizes checks that 16M is 16MiB.
func TestSizes(t *testing.T) {
	for text, want := range map[string]yamlfile.Size{"16M": 16 << 20, "16MiB": 16 << 20, "16MB": 16e6, "2k": 2048, "1.5 GiB": 3 << 29} {
		var got yamlfile.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
}
