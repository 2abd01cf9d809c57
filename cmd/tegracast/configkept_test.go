// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/appliance"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestChangedConfigurationOutlivesARestart checks that serve continues with a changed configuration, and config diff
// shows it, until it is reset. A stored configuration that cannot be opened does not prevent serve from using its file.
func TestChangedConfigurationOutlivesARestart(t *testing.T) {
	state := t.TempDir()
	t.Setenv("STATE_DIRECTORY", state)
	p := rtptest.EvenPorts(t, 2)
	text := fmt.Sprintf(`web: {listen: "127.0.0.1:%d"}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 64, height: 16}}]
isp: [{name: isp, workers: 1}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}]
`, p[0], p[1])
	file, url := programtest.Write(t, "config.yaml", text), fmt.Sprintf("http://127.0.0.1:%d/api/v1/config", p[0])
	start := func(used bool) *programtest.Process {
		t.Helper()
		serve := programtest.StartProgram(t, "serve", "--config", file, "--sdp-dir", t.TempDir())
		if status, body := fetch(t, url); status != http.StatusOK || strings.Contains(body, `"kept":true`) != used {
			t.Errorf("%d %s", status, body)
		}
		return serve
	}
	ask := func(method, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := programtest.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", method, answer.Status)
		}
	}
	differs := func(want int, says string) {
		t.Helper()
		if status, out, errw := runs(t, "config", "diff", file); status != want || !strings.Contains(out, says) {
			t.Errorf("config diff: %d %s %s", status, out, errw)
		}
	}
	serve := start(false)
	differs(exitOK, "nothing is kept")
	ask(http.MethodPut, strings.Replace(text, "name: raw,", "name: raw, rate: 5,", 1))
	serve.Stop(t)
	serve = start(true)
	differs(exitFailure, "\n+outputs: [{name: raw, rate: 5,")
	serve.Stop(t)
	keptFile := filepath.Join(state, appliance.ConfigFile)
	closed := strings.Replace(text, "127.0.0.1:"+fmt.Sprint(p[1]), "nowhere.invalid:5004", 1)
	if err := os.WriteFile(keptFile, []byte(closed), 0o600); err != nil {
		t.Fatal(err)
	}
	serve = start(false) // the stored configuration cannot be opened
	ignored := func(want string) {
		t.Helper()
		if _, body := fetch(t, url); !strings.Contains(body, `"ignored":`+want) {
			t.Error(body)
		}
	}
	ignored("true")
	ask(http.MethodDelete, "")
	ignored("false")
	serve.Stop(t)
	serve = start(false)
	differs(exitOK, "nothing is kept")
	serve.Stop(t)
}
