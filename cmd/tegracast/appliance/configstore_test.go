// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// keptText is an installed configuration.
const keptText = `web: {listen: "127.0.0.1:8080"}
sources: [{name: camera, model: {width: 64, height: 16}}]
isp: [{name: isp}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5104"]}}]
`

// TestKept checks that a stored configuration is used, except for its section web, until it is forgotten, and that an
// invalid one is not used. The installed file's own text is not stored. Only the owner can read the file.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	s := ConfigStore{Installed: filepath.Join(dir, "installed.yaml"), Folder: filepath.Join(dir, "state")}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(s.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write(s.Installed, keptText)
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
	loaded("nothing is kept", false, "", keptText)
	differs(false, "nothing is kept")
	other := strings.NewReplacer("5104", "5106", "8080", "8081").Replace(keptText)
	write(s.File()+".new", "half of a te") // as left by a loss of power
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
		if a != (ConfigStore{Installed: s.Installed}) || strings.Contains(log.String(), "is not used") != want {
			t.Errorf("%+v, and the log has %s", a, &log)
		}
	}
	alone(true)
	write(s.File(), other+"unknown: key\n")
	loaded("a bad one", false, "cannot be used", keptText)
	if !s.Holds() {
		t.Error("a bad one is none")
	}
	keep(other, true)
	keep(keptText, false)
	loaded("the installed file's own text", false, "", keptText)
	keep(other, true)
	if err := s.Forget(); err != nil {
		t.Error(err)
	}
	if old, err := os.ReadFile(s.File() + ".old"); s.Holds() || string(old) != other {
		t.Errorf("it is still kept, or lost: %s %v", old, err)
	}
	loaded("forgotten", false, "", keptText)
	alone(false)
	if kept, err := (ConfigStore{Installed: s.Installed}).Keep([]byte(other)); kept || err != nil {
		t.Errorf("it was kept nowhere: %v", err)
	}
}

// TestCheckOfWeb checks that a text may contain the current section web, or the one that it contained before, and no
// other.
func TestCheckOfWeb(t *testing.T) {
	now := config.Web{Listen: "127.0.0.1:9090"}
	for listen, want := range map[string]bool{"127.0.0.1:9090": true, "127.0.0.1:8080": true, "127.0.0.2:8080": false} {
		c, check := ConfigStore{}.Check([]byte(strings.Replace(keptText, "127.0.0.1:8080", listen, 1)), now, keptText)
		if check.Good != want || (len(check.Mistakes) == 0) != want || c == nil {
			t.Errorf("%s: %+v", listen, check)
		}
	}
}
