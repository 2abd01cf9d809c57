// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// hostile sets a terminal's title, clears the terminal, and colours the text that follows, by C0 and C1 controls.
const hostile = "x\x1b]0;title\a\x1b[2J\u009b31m\rhidden"

// movesCursor reports whether a text has anything but printable lines.
func movesCursor(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// TestForeignNamesOnATerminal checks that neither the content nor the name of a foreign file can move the cursor.
func TestForeignNamesOnATerminal(t *testing.T) {
	w, b, err := mcap.NewWriter("", hostile, 4096,
		[]mcap.Schema{{ID: 1, Name: hostile}}, []mcap.Channel{{ID: 1, Schema: 1, Topic: hostile}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", "")+".mcap")
	if err := os.WriteFile(path, w.End(b), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := path + ".missing"
	for _, args := range [][]string{
		{"record", "info", path},
		{"record", "info", "--json", path},
		{"record", "info", missing},
		{"record", "verify", path},
		{"record", "repair", path},
		{"record", "repair", missing},
		{"record", "export", path, "-o", filepath.Join(filepath.Dir(path), hostile+".y4m")},
		{"record", "export", missing, "-o", "x.y4m"},
		{"record", "ls", path, missing},
		{"probe", missing},
		{"probe", path},
		{"config", "check", missing},
		{"config", "check", path},
		{"config", "check", "--json", path},
		{"serve", "--config", missing},
		{"fleet", "--server", hostile},
		{"receive", "--ucx", hostile},
		{"send", hostile, "h:1", "--config", missing},
		{"doctor", "--report", filepath.Join(missing, "x.tar")},
		{hostile},
		{"help", "record", hostile},
	} {
		_, out, errw := runs(t, args...)
		if movesCursor(out) || movesCursor(errw) {
			t.Errorf("%q:\n%q\n%q", args, out, errw)
		}
	}
}

// TestForeignReportOnATerminal checks the same for all texts in a report on a recording.
func TestForeignReportOnATerminal(t *testing.T) {
	x := hostile + "\n"
	r := &record.Report{
		Path: x, Library: x, Trouble: x, Image: &record.Image{Encoding: x, FrameID: x}, About: map[string]string{"pixels": x, "rate": x},
		Triggers: []record.TriggerNote{{Cause: x}}, Others: []record.Unplayed{{Topic: x, Schema: x, Reason: x}}, Wrong: []string{x},
	}
	var out bytes.Buffer
	if err := printReport(&out, r, true); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); movesCursor(text) || strings.Count(text, "\n") != 9 {
		t.Errorf("%q", text)
	}
}
