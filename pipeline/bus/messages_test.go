// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// keysOf adds the keys of a type below a path, with their kinds.
func keysOf(typ reflect.Type, path string, keys map[string]string) {
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		elem := f.Type
		for elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		at := path + name
		kind, list := elem.Kind(), elem.Kind() == reflect.Slice
		switch {
		case f.Anonymous:
			keysOf(elem, path, keys)
		case elem == reflect.TypeFor[time.Time]():
			keys[at] = "time"
		case list && elem.Elem().Kind() == reflect.Struct:
			keys[at] = "list"
			keysOf(elem.Elem(), at+"[].", keys)
		case list:
			keys[at] = "list"
		case kind == reflect.Map:
			keys[at] = "object"
		case kind == reflect.String:
			keys[at] = "text"
		case kind == reflect.Bool:
			keys[at] = "boolean"
		case kind == reflect.Float64:
			keys[at] = "number"
		default:
			keys[at] = "integer"
		}
	}
}

var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+) \\| .{8,} \\|$")

// TestMessagesAreDocumented: docs/bus.md has each key of each subject's messages with its kind, and no other.
func TestMessagesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "bus.md"))
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]reflect.Type{
		"Every message": reflect.TypeFor[Head](), "Results": reflect.TypeFor[Results](), "Events": reflect.TypeFor[Happened](),
		"Health": reflect.TypeFor[Condition](),
	}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		typ := types[title]
		delete(types, title)
		if typ == nil {
			continue
		}
		want, got := map[string]string{}, map[string]string{}
		keysOf(typ, "", want)
		if title == "Results" {
			maps.DeleteFunc(want, func(key, _ string) bool {
				_, is := reflect.TypeFor[Head]().FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, key) })
				return is
			})
		}
		for _, m := range row.FindAllStringSubmatch(body, -1) {
			got[m[1]] = m[2]
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if got[key] != want[key] {
				t.Errorf("%s: a row of | `%s` | %s | ... | is missing, there is %q", title, key, want[key], got[key])
			}
			delete(got, key)
		}
		for key := range got {
			t.Errorf("%s: there is no key %s", title, key)
		}
	}
	if len(types) > 0 {
		t.Errorf("sections are missing: %v", types)
	}
}

// TestMessagesAreTheirTypes: what is published is what the documented types say, with nothing more.
func TestMessagesAreTheirTypes(t *testing.T) {
	p, err := New(Config{Server: Server{URL: "nats://127.0.0.1:1"}, Board: "a-1", Folder: t.TempDir(), Limit: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	moment, frame := time.Unix(3, 4).UTC(), uint64(0)
	report := pipeline.Report{Frame: 7, Captured: moment, Results: []pipeline.Result{{Stage: "s", Bins: []uint32{1}}}}
	happened := Happened{Kind: KindTrigger, Output: "o", Cause: "\"x\"", Moment: &moment, Frame: &frame, Fields: map[string]string{"k": "v"}}
	condition := Condition{Program: "1", Started: moment, Every: time.Second, Sources: []SourceHealth{{Name: "c"}}, Outputs: []OutputHealth{{Name: "o"}}}
	if err := p.Results("o", report); err != nil {
		t.Fatal(err)
	}
	p.Event(happened)
	p.Health(condition)
	for i, want := range []any{&Results{Output: "o", Report: report}, &Event{Happened: happened}, &Health{Condition: condition}} {
		m := p.queue[i]
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		dec := json.NewDecoder(bytes.NewReader(m.Data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(got); err != nil {
			t.Fatalf("%v: %s", err, m.Data)
		}
		h := reflect.ValueOf(got).Elem().FieldByName("Head").Addr().Interface().(*Head)
		if h.Version != Version || h.Board != "a-1" || len(h.ID) != 16 || h.Epoch != 1 || h.Sequence != 1 || time.Since(h.At) > time.Hour {
			t.Errorf("%+v", h)
		}
		*h = Head{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestAddresses: URLs and names that can be, and those that cannot.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"nats://h": "h:4222", "tls://h:1": "h:1", "mqtt://[::1]": "[::1]:1883", "mqtts://h": "h:8883",
		"h:4222": "", "http://h": "", "nats://": "", "nats://u:p@h": "", "nats://h/x": "", "nats://h?x=1": "", "": "", "nats://h:x": "",
	} {
		err := CheckServer(text)
		if _, address := (&Server{URL: text}).address(); (err == nil) != (want != "") || err == nil && address != want {
			t.Errorf("%q: %v, %q", text, err, address)
		}
	}
	for name, want := range map[string]bool{"a": true, "Gate_1-b": true, "": false, "a.b": false, "a b": false, "a/b": false, "*": false} {
		if (CheckBoard(name) == nil) != want {
			t.Error(name)
		}
	}
}

// FuzzHealth: no message harms whoever lists the boards.
func FuzzHealth(f *testing.F) {
	f.Add([]byte(`{"version":1,"board":"a","at":"2026-01-02T03:04:05Z","outputs":[{"name":"x"}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHealth(b); err == nil && (h.Version != Version || CheckBoard(h.Board) != nil) {
			t.Errorf("%+v", h)
		}
	})
}
