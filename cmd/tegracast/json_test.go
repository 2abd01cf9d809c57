// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/doctor"
	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cmd/tegracast/verdict"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/bus"
	"github.com/tegracast/tegracast/pipeline/record"
)

// jsonSections lists the sections of docs/json.md in order: the output of the commands with --json, and the messages on
// a bus. Their keys have the comments of their fields.
var jsonSections = []struct {
	title, about string
	typ          reflect.Type
}{
	{"Distributions", "With a count of 0 nothing was measured.", reflect.TypeFor[pipeline.Percentiles]()},
	{"probe", "", reflect.TypeFor[verdict.Stream]()},
	{"receive", "", reflect.TypeFor[verdict.Frames]()},
	{"loopback", "", reflect.TypeFor[loopback.Result]()},
	{"fleet", "", reflect.TypeFor[Fleet]()},
	{"record ls", "", reflect.TypeFor[record.Entry]()},
	{"record info, record verify", "For a file that cannot be read there is only a message.", reflect.TypeFor[record.Report]()},
	{
		"config check", "Whether keys fit together, and whether there is memory for them, is checked once all keys and values are right.",
		reflect.TypeFor[Check](),
	},
	{"doctor", "", reflect.TypeFor[doctor.Findings]()},
	{"version", "", reflect.TypeFor[Version]()},
	{"bus: every message", "", reflect.TypeFor[bus.Head]()},
	{"bus: results", "Outputs of results send the same without the head and `output` ([results-output.md](results-output.md)).", reflect.TypeFor[bus.Results]()},
	{"bus: events", "", reflect.TypeFor[bus.Happened]()},
	{"bus: health", "", reflect.TypeFor[bus.Condition]()},
}

const jsonAbout = "# JSON reference\n\nThe keys of what commands print with `--json`, and of the messages on a [bus](bus.md). %s\n" + `
A command prints one object to standard output for each stream, file or run. Messages go to standard error; the exit status is the
same. Each object begins with ` + "`version`" + `, an integer, now 1. It rises when a key goes, or changes its meaning or unit. New keys do not raise
it: ignore keys that you do not know. Optional keys are left out when empty. ` + "`clean`, `good` and `ready`" + ` decide the exit status.

- Durations are integers of nanoseconds; their names end in ` + "`_ns`" + `. Sizes are bytes, rates bytes a second.
- Times are RFC 3339 with a zone: ` + "`2026-11-24T09:30:00.123456789Z`. If there is none: `0001-01-01T00:00:00Z`." + `
- ` + "`settings` and `triggers`" + ` of a recording are as in the file: nanoseconds, and nanoseconds since 1970.
`

func jsonPage(t *testing.T, b *bytes.Buffer) {
	fmt.Fprintf(b, jsonAbout, strings.TrimSuffix(generated, "\n"))
	for _, s := range jsonSections {
		fmt.Fprintf(b, "\n## %s\n\n", s.title)
		if s.about != "" {
			b.WriteString(s.about + "\n\n")
		}
		b.WriteString("| key | kind | meaning |\n|---|---|---|\n")
		for _, k := range keysOf(t, s.typ, "") {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.name, k.kind, cell(k.meaning))
		}
	}
}

// elsewhere are the kinds of objects whose keys have a section of their own.
var elsewhere = map[reflect.Type]string{reflect.TypeFor[pipeline.Percentiles](): "distribution", reflect.TypeFor[bus.Health](): "object"}

type jsonKey struct{ name, kind, meaning string }

// keysOf are the keys of a type below a path.
func keysOf(t *testing.T, typ reflect.Type, path string) (keys []jsonKey) {
	t.Helper()
	comments := fieldComments(t, typ)
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.Type == reflect.TypeFor[bus.Head]():
			continue
		case f.Anonymous:
			keys = append(keys, keysOf(t, f.Type, path)...)
			continue
		case name == "" || len(comments[f.Name]) < 6:
			t.Errorf("%v.%s has no name in JSON, or no comment: %q", typ, f.Name, comments[f.Name])
		}
		k := jsonKey{path + name, "", comments[f.Name]}
		if options != "" {
			k.meaning += " (optional)"
		}
		elem := f.Type
		for elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		var below []jsonKey
		switch {
		case elsewhere[elem] != "":
			k.kind = elsewhere[elem]
		case elem == reflect.TypeFor[[]byte]():
			k.kind = "text"
		case elem == reflect.TypeFor[time.Time]():
			k.kind = "time"
		case elem.Kind() == reflect.Struct:
			k.kind, below = "object", keysOf(t, elem, k.name+".")
		case elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct:
			k.kind, below = "list", keysOf(t, elem.Elem(), k.name+"[].")
		default:
			k.kind = jsonKind(elem.Kind())
		}
		// Settings are as in the file.
		if elem == reflect.TypeFor[time.Duration]() && !strings.HasSuffix(name, "_ns") && typ != reflect.TypeFor[record.Settings]() {
			t.Errorf("%s: a duration has no _ns in its name", k.name)
		}
		keys = append(append(keys, k), below...)
	}
	return keys
}

// fieldComments are the comments behind the fields of a type, by the field's name.
func fieldComments(t *testing.T, typ reflect.Type) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", strings.TrimPrefix(typ.PkgPath(), module), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v is in %s: %v", typ, typ.PkgPath(), err)
	}
	comments := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, is := n.(*ast.TypeSpec)
			if !is || s.Name.Name != typ.Name() {
				return true
			}
			ast.Inspect(s, func(n ast.Node) bool {
				if f, is := n.(*ast.Field); is && len(f.Names) == 1 {
					comments[f.Names[0].Name] = strings.TrimSpace(f.Comment.Text())
				}
				return true
			})
			return false
		})
	}
	return comments
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

// TestJSONHasAVersion checks that the version comes first. The output of loopback names the measurements.
func TestJSONHasAVersion(t *testing.T) {
	_, out, _ := runs(t, "loopback", "--json", "--size", "4KiB", "--count", "1")
	var r struct {
		Version int
		loopback.Result
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || !strings.HasPrefix(out, "{\n  \"version\": 1,\n") || r.Version != terminal.JSONVersion {
		t.Errorf("%v:\n%s", err, out)
	}
	if r.Device != "model" || !r.Model || r.Memory != "host" || r.Size != 4096 {
		t.Errorf("%+v", r)
	}
	if _, text, _ := runs(t, "loopback", "--size", "4KiB"); !strings.Contains(text, "measured: the FPGA model in this program, not a card") {
		t.Error(text)
	}
	var v struct {
		Version           int
		Program, Go, Arch string
	}
	_, out, _ = runs(t, "version", "--json")
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Version != terminal.JSONVersion || v.Program != versionName() ||
		v.Go != runtime.Version() || v.Arch != runtime.GOARCH {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, out, _ := runs(t, "doctor", "--json"); !strings.HasPrefix(out, "{\n  \"version\": 1,\n") {
		t.Errorf("%.100s", out)
	}
}
