// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
)

// TestMessagesAreTheirTypes checks that published messages contain exactly what the documented types say.
func TestMessagesAreTheirTypes(t *testing.T) {
	p, err := New(Config{Server: Server{URL: "nats://127.0.0.1:1"}, Board: "a-1", Folder: t.TempDir(), Limit: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	moment, frame := time.Unix(3, 4).UTC(), uint64(0)
	found := report.Report{Frame: 7, Captured: moment, Results: []pipeline.Result{{Stage: "s", Bins: []uint32{1}}}}
	happened := Happened{Kind: KindTrigger, Output: "o", Cause: "\"x\"", Moment: &moment, Frame: &frame, Fields: map[string]string{"k": "v"}}
	condition := Condition{Program: "1", Started: moment, Every: time.Second, Sources: []SourceHealth{{Name: "c"}}, Outputs: []OutputHealth{{Name: "o"}}}
	if err := p.Results("o", found); err != nil {
		t.Fatal(err)
	}
	p.Event(happened)
	p.Health(condition)
	for i, want := range []any{&Results{Output: "o", Report: found}, &Event{Happened: happened}, &Health{Condition: condition}} {
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

// TestAddresses checks valid and invalid URLs and names.
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

// FuzzHealth checks that no message can harm a client that lists the boards.
func FuzzHealth(f *testing.F) {
	f.Add([]byte(`{"version":1,"board":"a","at":"2026-01-02T03:04:05Z","outputs":[{"name":"x"}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHealth("tegracast.a.health", b); err == nil && (h.Version != Version || h.Board != "a") {
			t.Errorf("%+v", h)
		}
	})
}
