// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
)

const text = `web: {listen: "127.0.0.1:8080"}
sources: [{name: camera, model: {width: 64, height: 16}}]
isp: [{name: isp}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5104"]}}]
`

// TestKept: what is kept is used, but for the section web, until it is forgotten; a text that is kept and bad is not; the installed
// file's own text is none to keep. Nobody but the owner can read it.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	s := Store{Installed: filepath.Join(dir, "installed.yaml"), Folder: filepath.Join(dir, "state")}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(s.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write(s.Installed, text)
	loaded := func(when string, wantKept bool, wantLog, wantText string) {
		t.Helper()
		var log bytes.Buffer
		c, kept, err := s.Load(slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || kept != wantKept || string(c.Text) != wantText || c.Web.Listen != "127.0.0.1:8080" || !strings.Contains(log.String(), wantLog) {
			t.Errorf("%s: kept %v, %v, %+v, and the log has %s", when, kept, err, c, &log)
		}
	}
	keep := func(text string, want bool) {
		t.Helper()
		if kept, err := s.Keep([]byte(text)); err != nil || kept != want {
			t.Errorf("kept %v: %v", kept, err)
		}
	}
	differs := func(want bool, says string) {
		t.Helper()
		var out bytes.Buffer
		if d, err := s.Diff(t.Context(), &out); err != nil || d != want || !strings.Contains(out.String(), says) {
			t.Errorf("%v %v %s", d, err, &out)
		}
	}
	loaded("nothing is kept", false, "", text)
	differs(false, "nothing is kept")
	other := strings.NewReplacer("5104", "5106", "8080", "8081").Replace(text)
	write(s.File()+".new", "half of a te") // as the power was lost
	keep(other, true)
	loaded("kept", true, "tegracast config diff", other)
	differs(true, "\n+outputs: [{name: raw, rtp: {payload: raw, destinations: [\"127.0.0.1:5106\"]}}]\n")
	if list, err := os.ReadDir(s.Folder); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
	if info, err := os.Stat(s.File()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	alone := func(want bool) {
		t.Helper()
		var log bytes.Buffer
		a := s.Alone(slog.New(slog.NewTextHandler(&log, nil)))
		if a != (Store{Installed: s.Installed}) || strings.Contains(log.String(), "is not used") != want {
			t.Errorf("%+v, and the log has %s", a, &log)
		}
	}
	alone(true)
	write(s.File(), other+"unknown: key\n")
	loaded("a bad one", false, "cannot be used", text)
	if !s.Holds() {
		t.Error("a bad one is none")
	}
	keep(other, true)
	keep(text, false)
	loaded("the installed file's own text", false, "", text)
	keep(other, true)
	if err := s.Forget(); err != nil {
		t.Error(err)
	}
	if old, err := os.ReadFile(s.File() + ".old"); s.Holds() || string(old) != other {
		t.Errorf("it is still kept, or lost: %s %v", old, err)
	}
	loaded("forgotten", false, "", text)
	alone(false)
	if kept, err := (Store{Installed: s.Installed}).Keep([]byte(other)); kept || err != nil {
		t.Errorf("it was kept nowhere: %v", err)
	}
}

// TestCheckOfWeb: a text may say what the page is reached by, or what it has said before, and nothing else.
func TestCheckOfWeb(t *testing.T) {
	now := readers.Web{Listen: "127.0.0.1:9090"}
	for listen, want := range map[string]bool{"127.0.0.1:9090": true, "127.0.0.1:8080": true, "0.0.0.0:8080": false} {
		c, check := Store{}.Check([]byte(strings.Replace(text, "127.0.0.1:8080", listen, 1)), now, text)
		if check.Good != want || (len(check.Mistakes) == 0) != want || c == nil {
			t.Errorf("%s: %+v", listen, check)
		}
	}
}
