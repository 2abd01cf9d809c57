// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// descriptions returns what the structs say about their keys, as "Struct.key", from kind on. An embedded struct's keys are owner's.
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

// TestTheSchemaDescribesEveryKey: an editor that reads the schema shows the whole description of each key.
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
