// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const recordYAML = `
memory: host
web: {listen: none}
sources: [{name: camera, model: {width: 640, height: 480, rate: 50}}]
isp: [{name: isp}]
outputs:
  - {name: samples, from: camera, policy: block, record: {directory: %[1]q, duration: 1s}}
  - {name: pictures, from: isp, record: {directory: %[1]q}}
`

// awaitFiles waits until a recording has started its nth file.
func awaitFiles(t *testing.T, dir, name string, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if files, _ := record.Files(dir, name); len(files) >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no %d files", name, n)
		}
	}
}

// TestServeRecords records a source and an isp into several files. record verify must find every frame that the
// statistics count.
func TestServeRecords(t *testing.T) {
	dir := t.TempDir()
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "record.yaml", fmt.Sprintf(recordYAML, dir)))
	awaitFiles(t, dir, "samples", 3)
	serve.Stop(t)
	recorded := books(t, serve.Out.String())
	for name, encoding := range map[string]string{"samples": "bayer_rggb16", "pictures": "uyvy"} {
		files, err := record.Files(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		var out, errw bytes.Buffer
		if status := run(context.Background(), append([]string{"record", "verify", "--json"}, files...), &out, &errw); status != exitOK {
			t.Errorf("%s: status %d\n%s%s", name, status, out.String(), errw.String())
		}
		frames := uint64(0)
		for dec := json.NewDecoder(&out); dec.More(); {
			var r record.Report
			if err := dec.Decode(&r); err != nil {
				t.Fatal(err)
			}
			traced := r.Traced == r.Frames && len(r.Settings) > 0
			if !r.Finished || r.Frames == 0 || r.Checked != r.Frames || traced != (name == "samples") || r.Image.Encoding != encoding || r.Image.Width != 640 {
				t.Errorf("%+v", r)
			}
			frames += uint64(r.Frames)
		}
		if want := uint64(recorded[name][1]); frames != want || frames == 0 {
			t.Errorf("%s: the files have %d frames, the books %d", name, frames, want)
		}
	}
}

// recordedPictures records pictures, and returns the folder and the first file.
func recordedPictures(t *testing.T) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "record.yaml", fmt.Sprintf(recordYAML, dir)))
	awaitFiles(t, dir, "samples", 2) // by then there are some pictures, too
	serve.Stop(t)
	files, err := record.Files(dir, "pictures")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return dir, files[0]
}

// TestRecordTellsOfDamage covers a changed byte, a truncated file, and a file that is no recording.
func TestRecordTellsOfDamage(t *testing.T) {
	dir, path := recordedPictures(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[100_000] ^= 1
	for name, c := range map[string]struct {
		content []byte
		status  int
		says    string
	}{
		"whole.mcap":   {whole, exitOK, ": finished"},
		"flipped.mcap": {flipped, exitFailure, "have CRC"},
		"cut.mcap":     {whole[:len(whole)/2], exitOK, "not finished"},
		"other.mcap":   {[]byte("something else"), exitFailure, "not an MCAP file"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errw bytes.Buffer
		status := run(context.Background(), []string{"record", "verify", path}, &out, &errw)
		if text := out.String() + errw.String(); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: status %d, want %d and %q:\n%s", name, status, c.status, c.says, text)
		}
	}
	for _, c := range []struct{ word, says string }{{"repair", "torn bytes cut off"}, {"verify", ": finished"}, {"repair", "nothing to repair"}} {
		status, out, errw := runs(t, "record", c.word, filepath.Join(dir, "cut.mcap"))
		if status != exitOK || !strings.Contains(out, c.says) {
			t.Errorf("%s: status %d, want %q:\n%s%s", c.word, status, c.says, out, errw)
		}
	}
}

// TestServeRecordsTriggers checks that HTTP and SIGUSR1 each give a file with the frames around the trigger, and its
// cause. A page of another site, and the name of no recording, trigger nothing.
func TestServeRecordsTriggers(t *testing.T) {
	dir, port := t.TempDir(), rtptest.EvenPorts(t, 1)[0]
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "record.yaml", fmt.Sprintf(`
memory: host
web: {listen: "127.0.0.1:%d"}
sources: [{name: camera, model: {width: 640, height: 480, rate: 50}}]
outputs:
  - {name: samples, from: camera, queue: 8, record: {directory: %q, trigger: {before: 200ms, after: 200ms}}}
`, port, dir)))
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	for { // until there is a frame
		if _, body := fetch(t, base+"/metrics"); strings.Contains(body, `tegracast_output_frames_total{output="samples"} `) &&
			!strings.Contains(body, `tegracast_output_frames_total{output="samples"} 0`) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, c := range []struct {
		path, site string
		status     int
	}{
		{"/record/other/trigger", "", http.StatusNotFound},
		{"/record/samples/trigger", "cross-site", http.StatusForbidden},
		{"/record/samples/trigger", "", http.StatusOK},
	} {
		q, err := http.NewRequest(http.MethodPost, base+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.site != "" {
			q.Header.Set("Sec-Fetch-Site", c.site)
		}
		r, err := programtest.Client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != c.status {
			t.Errorf("%v: status %d", c, r.StatusCode)
		}
	}
	awaitFiles(t, dir, "samples", 1)
	time.Sleep(2 * time.Second) // so that the windows do not overlap
	if err := serve.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	awaitFiles(t, dir, "samples", 2)
	time.Sleep(500 * time.Millisecond)
	serve.Stop(t)
	files, err := record.Files(dir, "samples")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for i, cause := range []string{"http from 127.0.0.1:", "signal"} {
		r, err := record.Inspect(t.Context(), files[i], true, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Good() || !r.Finished || len(r.Triggers) != 1 || !strings.HasPrefix(r.Triggers[0].Cause, cause) ||
			r.Last.Sub(r.First) > 400*time.Millisecond || r.Frames < 2 {
			t.Errorf("%+v", r)
		}
	}
}
