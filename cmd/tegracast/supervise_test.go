// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestEndsAreNoFaults checks that a file played to its end beside a camera, and a recording that fails and resumes,
// appear in the service's status, on /healthz and in the metrics, and that the watchdog is still fed.
func TestEndsAreNoFaults(t *testing.T) {
	programtest.NotShort(t)
	dir, conn := t.TempDir(), serviceManager(t, "2000000") // a part may make no progress for a second
	recordings, p := filepath.Join(dir, "recordings"), rtptest.EvenPorts(t, 2)
	clip := programtest.Write(t, "clip.raw", strings.Repeat("\x00\x01", 64*16))
	cfg := programtest.Write(t, "config.yaml", fmt.Sprintf(`
web: {listen: "127.0.0.1:%d"}
rtsp: {listen: none}
memory: host
sources:
  - {name: camera, model: {width: 64, height: 16, rate: 50}}
  - {name: clip, file: {path: %s, width: 64, height: 16, rate: 10, once: true}}
isp: [{name: isp, from: clip}]
outputs:
  - {name: raw, from: isp, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: rec, from: camera, record: {directory: %s, sync: 10ms}}
`, p[0], clip, p[1], recordings))
	if err := os.Mkdir(recordings, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--config", cfg, "--sdp-dir", dir}, io.Discard, io.Discard)
	}()
	// heard waits for a message, and checks how often the watchdog was fed until then.
	heard := func(want string, least int) {
		t.Helper()
		buf, fed := make([]byte, 4096), 0
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for said := ""; !strings.Contains(said, want) || fed < least; {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("%v: it does not say %q, but %q", err, want, said)
			}
			if now := string(buf[:n]); now == "WATCHDOG=1" {
				fed++
			} else {
				said = now
			}
		}
	}
	get := func(path string) string {
		t.Helper()
		r, err := programtest.Client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", p[0], path))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d, %v: %s", path, r.StatusCode, err, b)
		}
		return string(b)
	}
	heard("STATUS=streaming; source clip has ended", 6) // three seconds
	get("/healthz")
	if err := os.RemoveAll(recordings); err != nil {
		t.Fatal(err)
	}
	heard("STATUS=streaming; output rec is retrying since", 6)
	get("/healthz")
	if m := get("/metrics"); !strings.Contains(m, `tegracast_output_state{output="rec",state="retrying"} 1`) || !strings.Contains(m, `tegracast_output_state{output="raw",state="ended"} 1`) {
		t.Errorf("the metrics:\n%s", m)
	}
	if s := get("/api/v1/status"); !strings.Contains(s, `"state":"retrying","error":"`) || !strings.Contains(s, "no such file") {
		t.Errorf("the status:\n%s", s)
	}
	if err := os.Mkdir(recordings, 0o755); err != nil {
		t.Fatal(err)
	}
	heard("STATUS=streaming; source clip has ended", 1)
	cancel()
	if status := <-ended; status != exitOK {
		t.Errorf("status %d", status)
	}
	if list, err := filepath.Glob(filepath.Join(recordings, "*.mcap")); len(list) != 1 || err != nil {
		t.Error(list, err)
	}
}
