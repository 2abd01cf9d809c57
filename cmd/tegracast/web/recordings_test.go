// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// recorded is a recording of 30 pictures, one each 40 ms, with frame numbers from 1200 on.
type recorded struct {
	record.Recordings
	video     *record.Video // open
	dir, file string
}

func recordPictures(t *testing.T) *recorded {
	t.Helper()
	r := &recorded{dir: t.TempDir()}
	r.video = record.NewVideo(record.VideoConfig{
		Directory: r.dir, Name: "front", Codec: mp4.JPEG, Width: 64, Height: 48, Sync: 50 * time.Millisecond, Logger: discard,
	})
	t.Cleanup(func() { _ = r.video.Close() })
	r.Add(r.video)
	for n := range uint64(30) {
		f := &pipeline.Frame{Sequence: 1200 + n}
		f.Times.Captured = time.Unix(1, 0).Add(time.Duration(n) * 40 * time.Millisecond)
		f.Results = []pipeline.Result{{Stage: "motion", Numbers: map[string]float64{"moving": float64(n)}}}
		r.video.Take(f, bytes.Repeat([]byte{byte(n)}, 1000), true)
	}
	for deadline := time.Now().Add(time.Minute); r.video.State().Frames < 30; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(r.video.State())
		}
	}
	r.file = filepath.Base(r.video.State().File)
	return r
}

// serveRecordings starts a server with recordings, and returns the address of their list.
func serveRecordings(t *testing.T, r *recorded) (list string) {
	t.Helper()
	return startServer(t, Config{listen: "127.0.0.1:0", Stats: stats, Health: (&state{}).health, Recordings: &r.Recordings}) + "/api/v1/recordings"
}

func sent(t *testing.T, method, url, ranges string) (r *http.Response, body []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != "" {
		q.Header.Set("Range", ranges)
	}
	if r, err = holder.Do(q); err == nil {
		defer r.Body.Close()
		body, err = io.ReadAll(r.Body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, body
}

// theList returns the only file of the list, after checking its folder.
func theList(t *testing.T, url, dir string) RecordingFile {
	t.Helper()
	var l RecordingList
	r, body := sent(t, "GET", url, "")
	if err := json.Unmarshal(body, &l); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", r.StatusCode, body, err)
	}
	if len(l.Files) != 1 || len(l.Folders) != 1 || l.Folders[0].Folder != dir || l.Folders[0].Free <= 0 || l.Folders[0].Error != "" || l.More {
		t.Fatalf("%+v", l)
	}
	return l.Files[0]
}

// TestRecordings checks the list, the download, and that a file can be deleted when it is not being written.
func TestRecordings(t *testing.T) {
	r := recordPictures(t)
	list := serveRecordings(t, r)
	if f := theList(t, list, r.dir); f.State != "being written" || f.Encoding != "" || f.Bytes < 30_000 {
		t.Errorf("%+v", f)
	}
	if a, body := sent(t, "DELETE", list+"/"+r.file, ""); a.StatusCode != http.StatusConflict ||
		!strings.Contains(string(body), "being written: stop its output first") {
		t.Errorf("%d %s", a.StatusCode, body)
	}
	if err := r.video.Close(); err != nil {
		t.Fatal(err)
	}
	if f := theList(t, list, r.dir); f.File != r.file || f.Output != "front" || f.State != "finished" || f.Encoding != "jpeg" ||
		f.Frames != 30 || f.Width != 64 ||
		f.FirstFrame != 1200 || f.LastFrame != 1229 || f.Seconds < 1.159 || f.Seconds > 1.161 || time.Since(f.Begin) > time.Hour {
		t.Errorf("%+v", f)
	}
	if a, body := sent(t, "GET", list+"?before="+r.file, ""); a.StatusCode != http.StatusOK || !strings.Contains(string(body), `"files":[]`) {
		t.Errorf("%d %s", a.StatusCode, body)
	}
	want, err := os.ReadFile(filepath.Join(r.dir, r.file))
	if err != nil {
		t.Fatal(err)
	}
	a, body := sent(t, "GET", list+"/"+r.file, "")
	if a.StatusCode != http.StatusOK || !bytes.Equal(body, want) || a.Header.Get("Content-Type") != "video/mp4" ||
		a.Header.Get("Content-Disposition") != fmt.Sprintf("attachment; filename=%q", r.file) {
		t.Errorf("%d, %v, %d bytes of %d", a.StatusCode, a.Header, len(body), len(want))
	}
	if a, body = sent(t, "GET", list+"/"+r.file, "bytes=1000-1999"); a.StatusCode != http.StatusPartialContent || !bytes.Equal(body, want[1000:2000]) {
		t.Errorf("%d, %d bytes", a.StatusCode, len(body))
	}
	if a, body = sent(t, "DELETE", list+"/"+r.file, ""); a.StatusCode != http.StatusOK {
		t.Errorf("%d %s", a.StatusCode, body)
	}
	if _, err := os.Stat(filepath.Join(r.dir, r.file)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if a, body = sent(t, "GET", list, ""); !strings.Contains(string(body), `"files":[]`) {
		t.Errorf("%d %s", a.StatusCode, body)
	}
}

// TestDeletionEndsDownloads checks that a client that downloads a file which is deleted gets no more of it.
func TestDeletionEndsDownloads(t *testing.T) {
	r := recordPictures(t)
	file := serveRecordings(t, r) + "/" + r.file
	const size = 1 << 30 // more than any buffer
	if err := errors.Join(r.video.Close(), os.Truncate(filepath.Join(r.dir, r.file), size)); err != nil {
		t.Fatal(err)
	}
	a, err := holder.Get(file)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if _, err := io.CopyN(io.Discard, a.Body, 1000); err != nil || a.ContentLength != size {
		t.Fatal(a.ContentLength, err)
	}
	if d, body := sent(t, "DELETE", file, ""); d.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", d.StatusCode, body)
	}
	if n, err := io.Copy(io.Discard, a.Body); !errors.Is(err, io.ErrUnexpectedEOF) || n > size/2 {
		t.Errorf("%d more bytes, %v", n, err)
	}
}

// TestLongRecordings checks that a client is to ask again while a recording is being read.
func TestLongRecordings(t *testing.T) {
	r := recordPictures(t)
	h := http.NewServeMux()
	h.Handle("GET /{name}", withClip(&r.Recordings, time.Nanosecond, showFrames))
	for tries := 0; ; tries++ { // when it has been read, it may be sent
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequestWithContext(t.Context(), "GET", "/"+r.file, nil))
		if a.Code == http.StatusServiceUnavailable && a.Header().Get("Retry-After") == "1" && strings.Contains(a.Body.String(), "the recording is being read") {
			break
		}
		if a.Code != http.StatusOK || tries == 100 {
			t.Fatalf("%d %v %s", a.Code, a.Header(), a.Body)
		}
	}
}

// TestRecordedVideo checks the video and the frames of spans, and that each byte range of a video equals that of the
// whole.
func TestRecordedVideo(t *testing.T) {
	r := recordPictures(t)
	file := serveRecordings(t, r) + "/" + r.file
	for _, tt := range []struct {
		query       string
		first, last int
		begin       float64
		says        string
	}{
		{"", 1200, 1229, 0, ""},
		{"?from=1210&to=1213", 1210, 1212, 0.4, ""},
		{"?from=400ms&to=1s", 1210, 1224, 0.4, ""},
		{"?to=%2B1", 1200, 1200, 0, ""},
		{"?from=1230", 0, 0, 0, "there is no frame from"},
		{"?from=1210&to=1210", 0, 0, 0, "there is no frame from"},
		{"?from=soon", 0, 0, 0, "from: \"soon\": write a frame's number"},
		{"?to=-1s", 0, 0, 0, "to: \"-1s\": write a frame's number"},
	} {
		a, body := sent(t, "GET", file+"/frames"+tt.query, "")
		v, whole := sent(t, "GET", file+"/video.mp4"+tt.query, "")
		if tt.says != "" {
			if a.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), tt.says) || v.StatusCode != a.StatusCode || !bytes.Equal(body, whole) {
				t.Errorf("%s: %d %s, %d %s", tt.query, a.StatusCode, body, v.StatusCode, whole)
			}
			continue
		}
		var span RecordedSpan
		if err := json.Unmarshal(body, &span); err != nil || a.StatusCode != http.StatusOK || span.More || span.Begin != tt.begin ||
			span.Last != uint64(tt.last) {
			t.Fatalf("%s: %d %.200s: %v", tt.query, a.StatusCode, body, err)
		}
		for i, f := range span.Frames {
			n := tt.first + i
			results := fmt.Sprintf(`[{"stage":"motion","numbers":{"moving":%d}}]`, n-1200)
			if string(f.Note["frame"]) != fmt.Sprint(n) || f.Seconds != float64(i)/25 || string(f.Note["results"]) != results || len(f.Note["captured"]) < 10 {
				t.Errorf("%s: frame %d: %v %s", tt.query, n, f.Seconds, f.Note)
			}
		}
		if len(span.Frames) != tt.last-tt.first+1 {
			t.Errorf("%s: %d frames", tt.query, len(span.Frames))
		}
		has := bytes.Contains(whole, bytes.Repeat([]byte{5}, 1000)) // frame 1205
		if v.StatusCode != http.StatusOK || v.Header.Get("Content-Type") != "video/mp4" || has != (tt.first <= 1205 && tt.last >= 1205) {
			t.Errorf("%s: %d, %v, %d bytes", tt.query, v.StatusCode, v.Header, len(whole))
		}
		for at := 0; at < len(whole); at += 1009 {
			end := min(at+1500, len(whole))
			p, part := sent(t, "GET", file+"/video.mp4"+tt.query, fmt.Sprintf("bytes=%d-%d", at, end-1))
			if p.StatusCode != http.StatusPartialContent || !bytes.Equal(part, whole[at:end]) || p.Header.Get("ETag") != v.Header.Get("ETag") {
				t.Fatalf("%s: bytes from %d on: %d, %d bytes, %v", tt.query, at, p.StatusCode, len(part), p.Header)
			}
		}
	}
}

// TestRecordingsOfOtherNames checks that nothing but the files of the list can be read or deleted, whatever the name.
func TestRecordingsOfOtherNames(t *testing.T) {
	r := recordPictures(t)
	base := strings.TrimSuffix(serveRecordings(t, r), "/recordings")
	secret := filepath.Join(r.dir, "secret")
	link := filepath.Join(r.dir, "front-20261124T063302933Z.mp4")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, link)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"secret", "..", "front-20261124T063302933Z.mp4", "../" + filepath.Base(r.dir) + "/" + r.file, secret, r.dir + "/" + r.file, r.file + "/",
		r.file + "\x00", ".front.mp4.index", "front-../../../../../secret", strings.Replace(r.file, ".mp4", ".mcap", 1),
		strings.ToUpper(r.file), "front-%s.mp4",
	} {
		for _, path := range []string{"", "/video.mp4", "/frames"} {
			for _, method := range []string{"GET", "DELETE"} {
				a, body := sent(t, method, base+"/recordings/"+url.PathEscape(name)+path, "")
				if (a.StatusCode != http.StatusNotFound && a.StatusCode != http.StatusMethodNotAllowed) || strings.Contains(string(body), "secret") {
					t.Errorf("%s %q%s: %d %.100q", method, name, path, a.StatusCode, body)
				}
			}
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("%q, %v", b, err)
	}
}
