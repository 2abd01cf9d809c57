// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
)

// TestRecordExports: the formats by their names, parts, a damaged frame by status 1, and what cannot be by status 2.
func TestRecordExports(t *testing.T) {
	dir := t.TempDir()
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "record.yaml", fmt.Sprintf(recordYAML, dir)))
	awaitFiles(t, dir, "samples", 2) // so there are some pictures, too
	serve.Stop(t)
	files, err := record.Files(dir, "pictures")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
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
		{[]string{files[0], "-o", out("a.y4m"), "--from", "200ms", "--to", "300ms"}, exitOK, "frames, 0 left out"},
		{[]string{files[0], "--output", out("b"), "--format", "png", "--to", "100ms"}, exitOK, "frames, 0 left out"},
		{[]string{damaged, "-o", out("c.mcap")}, exitFailure, "frames, 1 left out"},
		{[]string{damaged, "-o", out("c.mcap")}, exitFailure, "the file is there already: remove it"},
		{[]string{files[0], "-o", out("d.dng")}, exitFailure, "the frames are UYVY: export png or y4m"},
		{[]string{files[0], "-o", out("d")}, exitUsage, "give --format mcap, y4m, png, dng or mkv"},
		{[]string{files[0], "-o", out("d.avi")}, exitUsage, `unknown format "avi"`},
		{[]string{files[0], "-o", out("d.y4m"), "--from", "soon"}, exitUsage, "write a time since the first frame"},
		{[]string{files[0]}, exitUsage, "--output"},
		{[]string{files[0], "--json", "-o", out("d.y4m")}, exitUsage, "--json is not for export"},
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
}
