// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
)

// TestRecordExports covers the formats by their names, parts, a damaged frame with status 1, and invalid requests with
// status 2.
func TestRecordExports(t *testing.T) {
	dir, path := recordedPictures(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[100_000] ^= 1 // a pixel of the first frame
	damaged := programtest.Write(t, "damaged.mcap", string(b))
	out := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{path, "-o", out("a.y4m"), "--from", "200ms", "--to", "900ms"}, exitOK, "frames, 0 left out"},
		{[]string{path, "--output", out("b"), "--format", "png", "--to", "100ms"}, exitOK, "frames, 0 left out"},
		{[]string{damaged, "-o", out("c.mcap")}, exitFailure, "frames, 1 left out"},
		{[]string{damaged, "-o", out("c.mcap")}, exitFailure, "the file exists already: remove it"},
		{[]string{path, "-o", out("d.dng")}, exitFailure, "the frames are UYVY: export png or y4m"},
		{[]string{path, "-o", out("d")}, exitUsage, "give --format mcap, y4m, png, dng, mp4 or mkv"},
		{[]string{path, "-o", out("d.avi")}, exitUsage, `unknown format "avi"`},
		{[]string{path, "-o", out("d.y4m"), "--from", "soon"}, exitUsage, "write a frame's number such as 1200"},
		{[]string{path, "-o", out("d.y4m"), "--from", "1h"}, exitFailure, "there is no frame from 1h0m0s on: the file has frames "},
		{[]string{path}, exitUsage, "--output"},
		{[]string{path, "--json", "-o", out("d.y4m")}, exitUsage, "unknown option --json"},
	} {
		status, stdout, stderr := runs(t, append([]string{"record", "export"}, c.args...)...)
		if status != c.status || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%q: status %d, want %d and %q:\n%s%s", c.args, status, c.status, c.says, stdout, stderr)
		}
	}
	if info, err := os.Stat(out("a.y4m")); err != nil || info.Size() < 3*640*480*2 {
		t.Errorf("%v, %v", info, err)
	}
	if status, stdout, _ := runs(t, "record", "verify", out("c.mcap")); status != exitOK {
		t.Errorf("status %d\n%s", status, stdout)
	}
	interruptedRecordings(t, path, out("made.mcap"))
	positionsInYAML(t, path)
}

// positionsInYAML checks that positions of the configuration are read as those of the command are.
func positionsInYAML(t *testing.T, path string) {
	t.Helper()
	for part, says := range map[string]string{
		`from: "+100000"`:          "there is no frame from +100000 on: the file has frames ",
		"to: 2001-01-01T00:00:00Z": "there is no frame before 2001-01-01T00:00:00Z: ",
		"from: 4000000000, to: 1s": "there is no frame from frame 4000000000 on and before 1s: ",
	} {
		file := programtest.Write(t, "play.yaml", fmt.Sprintf("sources: [{name: camera, recording: {files: [%q], %s}}]\n"+
			"outputs: [{name: copy, record: {directory: .}}]\n", path, part))
		status, stdout, stderr := runs(t, "config", "check", file)
		if status != exitUsage || !strings.Contains(stdout+stderr, says) {
			t.Errorf("%s: status %d, want %q:\n%s%s", part, status, says, stdout, stderr)
		}
	}
}

// interruptedRecordings checks that an interrupt ends both commands at once, and leaves no partial file.
func interruptedRecordings(t *testing.T, path, made string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for args, says := range map[string]string{
		"verify " + path:                 "interrupted in " + path + ", after 0 of 1 files",
		"export " + path + " -o " + made: "interrupted after 0 frames: " + made + " is removed",
	} {
		var out, errw bytes.Buffer
		status := run(ctx, append([]string{"record"}, strings.Fields(args)...), &out, &errw)
		if status != exitFailure || !strings.Contains(errw.String(), "tegracast record: "+says) {
			t.Errorf("%s: status %d, %s%s, want %s", args, status, &out, &errw, says)
		}
	}
	if _, err := os.Stat(made); !os.IsNotExist(err) {
		t.Errorf("%s: %v", made, err)
	}
}

// TestRecordLs lists a folder by time, with a line for each file, and checks that a file that cannot be read has its
// error on its line and makes the status 1.
func TestRecordLs(t *testing.T) {
	dir, path := recordedPictures(t)
	samples, err := record.Files(dir, "samples")
	if err != nil {
		t.Fatal(err)
	}
	video := filepath.Join(dir, "exported.mp4")
	if status, _, errw := runs(t, "record", "export", path, "--to", "+2", "-o", video); status != exitOK {
		t.Fatal(errw)
	}
	const why = "error: mp4: its pictures are not in fragments: it is not a recording made by tegracast: open it with"
	if status, out, _ := runs(t, "record", "ls", video); status != exitFailure || !strings.Contains(out, why) {
		t.Errorf("status %d\n%s", status, out)
	}
	for _, name := range []string{"folder.mcap", "notes.txt"} { // neither is listed, nor the video
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	status, out, errw := runs(t, "record", "ls", dir)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if status != exitOK || errw != "" || len(lines) != 2+len(samples) || !strings.HasPrefix(lines[0], "OUTPUT ") {
		t.Fatalf("status %d\n%s%s", status, out, errw)
	}
	times := regexp.MustCompile(`^(\S+) +(\S+Z) +\d.* 640x480 (uyvy|bayer_rggb16) +(\S+) +finished$`)
	last := ""
	for _, line := range lines[1:] {
		m := times.FindStringSubmatch(line)
		if m == nil || m[2] < last || !strings.HasPrefix(m[4], filepath.Join(dir, m[1])+"-") || (m[1] == "pictures") != (m[3] == "uyvy") {
			t.Fatalf("%q in\n%s", line, out)
		}
		last = m[2]
	}
	bad := programtest.Write(t, "bad.mcap", "something else")
	status, out, errw = runs(t, "record", "ls", bad, samples[1], path, filepath.Join(dir, "none.mcap"))
	lines = strings.Split(out, "\n")
	if status != exitFailure || errw != "" || len(lines) != 6 || !strings.HasPrefix(lines[1], "pictures ") || !strings.HasPrefix(lines[2], "samples ") ||
		!strings.Contains(lines[3], `error: mcap: not an MCAP file: it begins with "somethin`) || !strings.Contains(lines[4], "none.mcap: no such file") {
		t.Errorf("status %d\n%s%s", status, out, errw)
	}
	status, out, errw = runs(t, "record", "ls", "--json", path, bad)
	dec := json.NewDecoder(strings.NewReader(out))
	var first, second record.Entry
	if err := errors.Join(dec.Decode(&first), dec.Decode(&second)); err != nil || status != exitFailure || errw != "" ||
		first.Path != path || first.Output != "pictures" || first.State != record.Finished || first.Frames == 0 || second.Error == "" {
		t.Errorf("status %d, %v\n%s%s", status, err, out, errw)
	}
}
