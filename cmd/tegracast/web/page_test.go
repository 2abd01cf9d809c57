// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/preview"
)

// film is a view with a new picture at each call of Next.
type film struct {
	made, open atomic.Int64
	size       int
}

// Next implements View.
func (f *film) Next(ctx context.Context, _ *preview.Picture) (*preview.Picture, error) {
	if f.size == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(time.Millisecond)
	return &preview.Picture{Sequence: uint64(f.made.Add(1)), Time: time.Now(), JPEG: make([]byte, f.size)}, ctx.Err()
}

// Close implements View.
func (f *film) Close() { f.open.Add(-1) }

// showing starts a server with outputs of these names.
func showing(t *testing.T, films map[string]*film, with ...func(*Config)) (base string) {
	t.Helper()
	s := &state{ready: true}
	c := Config{
		listen: "127.0.0.1:0", Version: "1.2.3", Stats: stats, Health: s.health,
		Outputs: func() []Output { return []Output{{Name: "raw", Sends: "raw video", SDP: true, Picture: true}} },
		Board:   func() []Reading { return []Reading{{Name: "VDD_GPU_SOC", Value: 24.9, Unit: "W", Alarm: true}} },
		View: func(name string) (View, error) {
			if name == "sealed" {
				return nil, errors.New("only outputs behind an isp can be looked at")
			}
			f := films[name]
			if f == nil {
				return nil, ErrNoOutput
			}
			f.open.Add(1)
			return f, nil
		},
		SDP: func(name string) ([]byte, error) {
			if name != "raw" {
				return nil, ErrNoOutput
			}
			return []byte("v=0\r\n"), nil
		},
		Still: func(_ context.Context, name, _ string) (Still, error) {
			err := map[string]error{
				"raw": nil, "sealed": errors.New("there is no picture of it"), "dark": context.DeadlineExceeded,
			}
			if e, known := err[name]; known {
				return Still{7, []byte("a file")}, e
			}
			return Still{}, ErrNoOutput
		},
	}
	for _, f := range with {
		f(&c)
	}
	return startServer(t, c)
}

// TestPage checks that the pages have the elements that their scripts use, and request nothing that does not exist.
func TestPage(t *testing.T) {
	base := showing(t, nil)
	for page, most := range map[string]int{"": 24_000, "recordings.html": 12_000} {
		if n := gzipped(t, wholePage(t, base, page)); n > most {
			t.Errorf("/%s has %d bytes when it is compressed", page, n)
		}
	}
	r, err := holder.Get(base + "/")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if !r.Uncompressed {
		t.Error("the page was not sent compressed")
	}
	if policy := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'self';") || strings.Contains(policy, "unsafe") ||
		r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", r.Header)
	}
	status, text := get(t, base+"/api/v1/status")
	var s Status
	if err := json.Unmarshal([]byte(text), &s); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	if s.Version != "1.2.3" || !s.Ready || len(s.Outputs) != 1 || s.Outputs[0].Name != "raw" || len(s.Board) != 1 || s.Board[0].Value != 24.9 || len(s.Books.Sources) != 1 {
		t.Errorf("the state is %+v", s)
	}
}

// wholePage returns a page with its files, after checking what they use.
func wholePage(t *testing.T, base, name string) string {
	t.Helper()
	_, page := get(t, base+"/"+name)
	all := page
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"#]+)"`).FindAllStringSubmatch(page, -1) {
		status, text := get(t, base+"/"+m[1])
		if status != http.StatusOK && m[1] != "api/v1/recordings" { // these are served with recordings
			t.Errorf("/%s asks for %s: status %d", name, m[1], status)
		}
		if !strings.Contains(m[1], "/") && !strings.HasSuffix(m[1], ".html") { // a file of the page
			all += text
		}
	}
	for _, m := range regexp.MustCompile(`[^.]get\("([a-z-]+)"\)`).FindAllStringSubmatch(all, -1) {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("/%s has no element %s", name, m[1])
		}
	}
	return all
}

// gzipped returns the length of a text after compression.
func gzipped(t *testing.T, text string) int {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.Len()
}

// TestFilesOfOutputs checks which files of outputs can be downloaded, and how others are refused.
func TestFilesOfOutputs(t *testing.T) {
	t.Parallel()
	films := map[string]*film{"raw": {size: 100}, "a.b": {size: 100}, "dark": {}}
	base := showing(t, films, func(c *Config) { c.patience = 2 * time.Second })
	for _, tt := range []struct {
		path   string
		status int
		says   string
	}{
		{"/raw.sdp", 200, "v=0"},
		{"/raw.jpg", 200, ""},
		{"/a.b.jpg", 200, ""},
		{"/other.sdp", 404, "there is no output of that name"},
		{"/other.jpg", 404, "there is no output of that name"},
		{"/other.mjpeg", 404, "there is no output of that name"},
		{"/sealed.jpg", 409, "only outputs behind an isp"},
		{"/dark.jpg", 503, "no picture arrives"},
		{"/raw.png", 200, "a file"},
		{"/raw.dng", 200, "a file"},
		{"/sealed.png", 409, "there is no picture"},
		{"/dark.png", 503, "no frame arrives"},
		{"/other.dng", 404, "there is no output of that name"},
		{"/raw.gif", 404, ""},
	} {
		if status, body := get(t, base+tt.path); status != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("%s: status %d: %s", tt.path, status, body)
		}
	}
	for name, f := range films {
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d still look at %s", n, name)
		}
	}
}

// watch starts to watch moving pictures.
func watch(t *testing.T, url string) *http.Response {
	t.Helper()
	r, err := holder.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	return r
}

// TestMovingPictures checks that pictures follow one another, for the maximum number of clients and no more.
func TestMovingPictures(t *testing.T) {
	t.Parallel()
	films := map[string]*film{"raw": {size: 1000}}
	base := showing(t, films)
	for range maxWatchers {
		r := watch(t, base+"/raw.mjpeg")
		_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("status %d, %v", r.StatusCode, err)
		}
		parts, before := multipart.NewReader(r.Body, params["boundary"]), ""
		for range 3 {
			p, err := parts.NextPart()
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(p)
			if n := p.Header.Get("X-Sequence"); err != nil || len(b) != 1000 || n == before {
				t.Fatalf("picture %s after %s has %d bytes: %v", n, before, len(b), err)
			} else {
				before = n
			}
		}
	}
	if r := watch(t, base+"/raw.mjpeg"); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one too many: status %d", r.StatusCode)
	}
	if status, _ := get(t, base+"/healthz"); status != http.StatusOK {
		t.Errorf("while all watch: health %d", status)
	}
}

// TestWhoDoesNotReadIsLeft checks that a client that does not read pictures delays only its own connection, and loses it.
func TestWhoDoesNotReadIsLeft(t *testing.T) {
	t.Parallel()
	f := &film{size: 1 << 20}
	base := showing(t, map[string]*film{"raw": f}, func(c *Config) { c.patience = 2 * time.Second })
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /raw.mjpeg HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+testToken+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); f.made.Load() == 0 || f.open.Load() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("after %d pictures it is still connected", f.made.Load())
		}
	}
}
