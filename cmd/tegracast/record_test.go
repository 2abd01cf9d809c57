// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
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

// awaitFiles waits until a recording has begun its nth file.
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

// TestServeRecords: of a source and of an isp, in several files; record verify finds every frame that the books have.
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
			if !r.Finished || r.Frames == 0 || r.Checked != r.Frames || r.Image.Encoding != encoding || r.Image.Width != 640 {
				t.Errorf("%+v", r)
			}
			frames += uint64(r.Frames)
		}
		if want := uint64(recorded[name][1]); frames != want || frames == 0 {
			t.Errorf("%s: the files have %d frames, the books %d", name, frames, want)
		}
	}
}

// TestRecordTellsOfDamage: a byte that is not as it was written, a file that was cut, and one that is none.
func TestRecordTellsOfDamage(t *testing.T) {
	dir := t.TempDir()
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "record.yaml", fmt.Sprintf(recordYAML, dir)))
	awaitFiles(t, dir, "samples", 2) // so there are some pictures, too
	serve.Stop(t)
	files, err := record.Files(dir, "pictures")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
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
}
