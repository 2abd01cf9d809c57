// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	follow(t, base, "", "").next(t, "sample", new(Sample)) // records of a stream that begins before the first sample come first
	f := follow(t, base, "pictures=raw:1", "")
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
	start, position, _ := strings.Cut(f.id, ".")
	if record.Msg != "first" || position != "1.1" {
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
	other := follow(t, base, "after=1"+start+".1.1", "") // of another process
	other.next(t, "log", &record)
	if record.Msg != "first" {
		t.Errorf("a client of an earlier process gets %+v first", record)
	}
}

// TestStreamPaces checks that pictures of each output come at its own rate.
func TestStreamPaces(t *testing.T) {
	base := startServer(t, Config{
		listen: "127.0.0.1:0", Stats: stats, Health: (&state{ready: true}).health,
		View: func(string) (View, error) { return &gallery{}, nil },
	})
	f := follow(t, base, "pictures=often:1,seldom:60000", "")
	got := map[string]int{}
	var picture PictureNotice
	for got["often"] < 20 || got["seldom"] == 0 {
		f.next(t, "picture", &picture)
		got[picture.Output]++
	}
	if got["seldom"] != 1 {
		t.Errorf("%v", got)
	}
}

// TestStalledStreams checks that clients that read nothing lose their places, although the buffers of their connections have
// room for minutes of events.
func TestStalledStreams(t *testing.T) {
	events := NewEvents()
	for range maxEvents {
		fmt.Fprintf(events, `{"msg":%q}`, strings.Repeat("long", 300))
	}
	base := startServer(t, Config{
		listen: "127.0.0.1:0", Stats: stats, Health: (&state{ready: true}).health, Events: events, patience: time.Second,
	})
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
		return errors.Join(failed, err)
	}}
	for path, places := range map[string]int{"/api/v1/stream": maxStreams, "/api/v1/events": maxListeners} {
		for range places {
			conn, err := small.DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, testToken)
			begin := make([]byte, len("HTTP/1.1 200"))
			if _, err := io.ReadFull(conn, begin); err != nil || string(begin) != "HTTP/1.1 200" {
				t.Fatalf("%s: %s %v", path, begin, err)
			}
		}
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			r, err := holder.Get(base + path)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				break
			}
			if time.Since(began) > 30*time.Second {
				t.Fatalf("%s: %s after %v", path, r.Status, time.Since(began))
			}
		}
	}
}

// TestStreamRefuses checks that wrong parameters are refused by name.
func TestStreamRefuses(t *testing.T) {
	base := serveState(t, &state{}, false)
	for query, want := range map[string]string{
		"pictures=a:often": `pictures: "a:often"`, "pictures=a,b:-1": `pictures: "b:-1"`, "pictures=a:60001": `pictures: "a:60001"`,
		"pictures=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q": "pictures: there are 17 outputs",
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
