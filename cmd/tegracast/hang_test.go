// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cudahost/cufile/hangtest"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func TestHangingDiskServer(t *testing.T) { hangtest.Serve(t) }

const hangYAML = `
memory: host
web: {listen: "127.0.0.1:%[1]d"}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 50}}]
isp: [{name: isp}]
outputs:
  - {name: first, from: camera, record: {directory: %[2]q, sync: 20ms}}
  - {name: second, from: isp, record: {directory: %[2]q, sync: 20ms}}
  - {name: other, from: camera, record: {directory: %[3]q, sync: 20ms}}
`

// TestServeOnADiskThatHangs checks that an output that records to a hanging disk can be stopped and started, that page,
// health and metrics answer, and that SIGTERM ends the program in time with the other recordings closed. The log names
// the file that is not closed. The kernel releases the process when the file system is gone, and then the status is 0.
func TestServeOnADiskThatHangs(t *testing.T) {
	programtest.NotShort(t)
	t.Parallel()
	disk, other, port := hangtest.Mount(t), t.TempDir(), rtptest.EvenPorts(t, 1)[0]
	cfg := programtest.Write(t, "hang.yaml", fmt.Sprintf(hangYAML, port, disk.Dir, other))
	serve := programtest.StartProgram(t, "serve", "--config", cfg, "--sdp-dir", t.TempDir())
	t.Cleanup(func() { disk.Pull(t) }) // before the program is waited for
	for name, folder := range map[string]string{"first": disk.Back, "second": disk.Back, "other": other} {
		awaitFiles(t, folder, name, 1)
	}
	ask := func(method, path string, within time.Duration) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := programtest.Client.Do(q)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return ""
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode/100 != 2 {
			t.Errorf("%s %s: %s %s, %v", method, path, a.Status, text, err)
		}
		return string(text)
	}
	for began, m := time.Now(), ""; deliveredTo("first", m) < 5 || deliveredTo("second", m) < 5; time.Sleep(20 * time.Millisecond) {
		if m = ask(http.MethodGet, "/metrics", 5*time.Second); time.Since(began) > time.Minute {
			t.Fatalf("nothing is recorded:\n%s", m)
		}
	}
	disk.Hang(t)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ask(http.MethodPost, "/api/v1/outputs/first/stop", 20*time.Second)
	}()
	for running := true; running; {
		select {
		case <-stopped:
			running = false
		case <-time.After(200 * time.Millisecond):
		}
		ask(http.MethodGet, "/healthz", 3*time.Second)
		ask(http.MethodGet, "/api/v1/status", 3*time.Second)
	}
	ask(http.MethodPost, "/api/v1/outputs/first/start", 5*time.Second)
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		said := ask(http.MethodGet, "/api/v1/status", 3*time.Second)
		if strings.Contains(said, `"state":"retrying","error":"the disk hangs: the recording `+disk.Dir) {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("started again, it is\n%s", said)
		}
	}
	before := deliveredTo("other", ask(http.MethodGet, "/metrics", 5*time.Second))
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !hangtest.Exiting(serve.Process.Pid); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Second { // 5 s, and what a busy machine adds; another test has the exact bound
			t.Fatal("it does not end")
		}
	}
	var out, errw bytes.Buffer
	files, err := record.Files(other, "other")
	status := run(t.Context(), append([]string{"record", "verify"}, files...), &out, &errw)
	if status != exitOK || len(files) != 1 || err != nil || before < 5 {
		t.Errorf("the other recording, of %d frames and more: status %d, %v\n%s%s", before, status, err, &out, &errw)
	}
	disk.Pull(t)
	if status = serve.Wait(t, time.Minute); status != exitOK {
		t.Errorf("status %d", status)
	}
	log := serve.Err.String()
	for _, name := range []string{"first", "second"} {
		file, err := record.Files(disk.Back, name)
		if err != nil || len(file) != 1 {
			t.Fatal(file, err)
		}
		if path := strings.Replace(file[0], disk.Back, disk.Dir, 1); !strings.Contains(log, "a recording is not closed\" output="+name+" file="+path) {
			t.Errorf("the log does not name %s", path)
		}
		if r, err := record.Inspect(t.Context(), file[0], true, func(float64) {}); err != nil || r.Finished || r.Frames < 1 {
			t.Errorf("%s: %+v, %v", file[0], r, err)
		}
		anew := filepath.Join(t.TempDir(), "anew.mcap")
		if status := run(t.Context(), []string{"record", "export", file[0], "-o", anew}, &out, &errw); status > exitFailure { // it may end within a frame
			t.Errorf("%s: status %d\n%s", file[0], status, &errw)
		}
		if r, err := record.Inspect(t.Context(), anew, true, func(float64) {}); err != nil || !r.Finished || !r.Good() || r.Frames < 1 {
			t.Errorf("written anew: %+v, %v", r, err)
		}
	}
	if t.Failed() {
		t.Logf("the log:\n%s", log)
	}
}
