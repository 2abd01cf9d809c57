// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/doctor"
	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/verdict"
	"github.com/tegracast/tegracast/pipeline/record"
)

// jsonOutputs are what the commands print with --json, by the headings of docs/json.md.
var jsonOutputs = map[string]reflect.Type{
	"probe":                      reflect.TypeFor[verdict.Stream](),
	"receive":                    reflect.TypeFor[verdict.Frames](),
	"loopback":                   reflect.TypeFor[loopback.Result](),
	"record info, record verify": reflect.TypeFor[record.Report](),
	"fleet":                      reflect.TypeFor[Fleet](),
	"config check":               reflect.TypeFor[Check](),
	"doctor":                     reflect.TypeFor[doctor.Findings](),
}

// keysOf adds the keys of a type below a path, with their kinds in JSON.
func keysOf(t *testing.T, typ reflect.Type, path string, keys map[string]string) {
	t.Helper()
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
			continue
		case f.Anonymous:
			keysOf(t, f.Type, path, keys)
			continue
		case name == "":
			t.Errorf("%v.%s has no name in JSON", typ, f.Name)
		}
		elem := f.Type
		for elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		name = path + name
		switch {
		case elem == reflect.TypeFor[time.Time]():
			keys[name] = "time"
		case elem == reflect.TypeFor[time.Duration]() && !strings.HasPrefix(name, "settings[]."): // which are as in the file
			if keys[name] = "integer"; !strings.HasSuffix(name, "_ns") {
				t.Errorf("%s: a duration has no _ns in its name", name)
			}
		case elem.Kind() == reflect.Struct:
			keys[name] = "object"
			keysOf(t, elem, name+".", keys)
		case elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct:
			keys[name] = "list"
			keysOf(t, elem.Elem(), name+"[].", keys)
		default:
			keys[name] = jsonKind(elem.Kind())
		}
	}
}

func jsonKind(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "object"
	}
	return "integer"
}

// row is one of a table of docs/json.md.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+) \\| .{8,} \\|$")

// TestJSONIsDocumented: docs/json.md has each key of each command's JSON with its kind, and no other; durations have one unit.
func TestJSONIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "json.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		typ, ok := jsonOutputs[title]
		if !ok {
			continue
		}
		found++
		want, got := map[string]string{}, map[string]string{}
		keysOf(t, typ, "", want)
		for _, m := range row.FindAllStringSubmatch(body, -1) {
			got[m[1]] = m[2]
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if got[key] != want[key] {
				t.Errorf("%s: a row of | `%s` | %s | ... | is missing, there is %q", title, key, want[key], got[key])
			}
			delete(got, key)
		}
		for _, key := range slices.Sorted(maps.Keys(got)) {
			t.Errorf("%s: there is no key %s", title, key)
		}
	}
	if found != len(jsonOutputs) {
		t.Errorf("%d of %d sections are there", found, len(jsonOutputs))
	}
}

// TestJSONHasAVersion: it comes first. The one of loopback says what was measured.
func TestJSONHasAVersion(t *testing.T) {
	_, out, _ := runs(t, "loopback", "--json", "--size", "4KiB", "--count", "1")
	var r struct {
		Version int
		loopback.Result
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || !strings.HasPrefix(out, "{\n  \"version\": 1,\n") || r.Version != command.JSONVersion {
		t.Errorf("%v:\n%s", err, out)
	}
	if r.Device != "model" || !r.Model || r.Memory != "host" || r.Size != 4096 {
		t.Errorf("%+v", r)
	}
	if _, text, _ := runs(t, "loopback", "--size", "4KiB"); !strings.Contains(text, "measured: the FPGA model in this program, not a card") {
		t.Error(text)
	}
	if _, out, _ := runs(t, "doctor", "--json"); !strings.HasPrefix(out, "{\n  \"version\": 1,\n") {
		t.Errorf("%.100s", out)
	}
}
