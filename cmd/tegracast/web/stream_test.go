// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/preview"
)

// A follower reads a stream of the state.
type follower struct {
	*bufio.Scanner
	id string // of the last event
}

func follow(t *testing.T, base, query, id string) *follower {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/stream?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		r.Header.Set("Last-Event-ID", id)
	}
	answer, err := holder.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v", answer, err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	s := bufio.NewScanner(answer.Body)
	s.Buffer(nil, 1<<20)
	return &follower{Scanner: s}
}

// next returns the data of the next event of a kind.
func (f *follower) next(t *testing.T, kind string, data any) {
	t.Helper()
	for now := ""; f.Scan(); {
		key, value, _ := strings.Cut(f.Text(), ": ")
		switch {
		case key == "event":
			now = value
		case key == "id":
			f.id = value
		case key == "data" && now == kind:
			if err := json.Unmarshal([]byte(value), data); err != nil {
				t.Fatalf("%s: %v: %s", kind, err, value)
			}
			return
		}
	}
	t.Fatalf("no %s has come: %v", kind, f.Err())
}

// gallery is a view whose pictures are numbered.
type gallery struct{ n uint64 }

// Next implements View.
func (g *gallery) Next(context.Context, *preview.Picture) (*preview.Picture, error) {
	g.n++
	return &preview.Picture{Sequence: g.n, Time: time.Now(), JPEG: []byte("picture")}, nil
}

// Close implements View.
func (g *gallery) Close() {}

// TestStream checks that a client gets samples, states, records and the pictures that it asks for, each at its time, and
// that one that comes back with an id misses nothing.
func TestStream(t *testing.T) {
	events := NewEvents()
	_, _ = events.Write([]byte(`{"msg":"first"}`))
	base := startServer(t, Config{
		listen: "127.0.0.1:0", Stats: stats, Health: (&state{ready: true}).health, Events: events,
		Outputs: func() []Output { return []Output{{Name: "raw"}} },
		View:    func(string) (View, error) { return &gallery{}, nil },
	})
	f := follow(t, base, "pictures=raw&every=1", "")
	var sample Sample
	var record struct{ Msg string }
	var status Status
	var picture PictureNotice
	f.next(t, "sample", &sample)
	if sample.Number != 1 || len(sample.Parts) == 0 {
		t.Errorf("%+v", sample)
	}
	f.next(t, "status", &status)
	if !status.Ready || len(status.Parts) != 3 || status.Parts[2].Name != "raw" {
		t.Errorf("%+v", status.Parts)
	}
	f.next(t, "log", &record)
	if record.Msg != "first" || f.id != "1.1" {
		t.Errorf("%+v, id %s", record, f.id)
	}
	known := f.id
	for n := range uint64(3) {
		f.next(t, "picture", &picture)
		if picture.Output != "raw" || picture.Sequence <= n || !strings.HasPrefix(picture.URL, fmt.Sprintf("raw.jpg?picture=%d-", picture.Sequence)) {
			t.Errorf("%+v", picture)
		}
	}
	_, _ = events.Write([]byte(`{"msg":"second"}`))
	f.next(t, "log", &record)
	if record.Msg != "second" {
		t.Errorf("%+v", record)
	}
	for query, header := range map[string]string{"": known, "after=" + known: ""} {
		again := follow(t, base, query, header)
		again.next(t, "log", &record)
		again.next(t, "sample", &sample)
		if record.Msg != "second" || sample.Number < 2 {
			t.Errorf("after %s: %+v, sample %d", known, record, sample.Number)
		}
	}
}

// TestStreamRefuses checks that wrong parameters are refused by name.
func TestStreamRefuses(t *testing.T) {
	base := serveState(t, &state{}, false)
	for query, want := range map[string]string{
		"every=often": "every: ", "every=-1": "every: ", "every=60001": "every: ",
		"pictures=" + strings.Repeat("a,", maxPictured) + "a": "pictures: there are 17 outputs",
	} {
		if status, text := get(t, base+"/api/v1/stream?"+query); status != http.StatusBadRequest || !strings.HasPrefix(text, want) {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
}

// TestPictureIsKept checks that a browser may keep the picture that its URL names, and no other.
func TestPictureIsKept(t *testing.T) {
	base := showing(t, map[string]*film{"raw": {size: 10}})
	for _, c := range [][2]string{{"1-0", "no-store"}, {"2-e38a6876", "private, max-age=60, immutable"}} {
		tag, want := c[0], c[1]
		r, err := holder.Get(base + "/raw.jpg?picture=" + tag)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if got := r.Header.Get("Cache-Control"); got != want {
			t.Errorf("picture=%s: %s (it is %s)", tag, got, r.Header.Get("ETag"))
		}
	}
}
