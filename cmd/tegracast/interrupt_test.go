// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// interrupted runs the program with an interrupt after some time, and returns the time that it took to end. This is well
// below a tenth of a second, unless the machine is busy.
func interrupted(t *testing.T, after time.Duration, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	at := make(chan time.Time, 1)
	stop := rtptest.WatchLateness(t)
	time.AfterFunc(after, func() {
		at <- time.Now()
		cancel()
	})
	var out, errw bytes.Buffer
	status = run(ctx, args, &out, &errw)
	ended, late := time.Now(), stop()
	select {
	case began := <-at:
		if took := ended.Sub(began); took > 3*time.Second+late.Total {
			t.Errorf("%s: went on for %v; its threads have waited for %v", args[0], took, late.Total)
		}
	default:
		t.Errorf("%s: ended before it was interrupted: status %d\n%s%s", args[0], status, &out, &errw)
	}
	return status, out.String(), strings.TrimSpace(errw.String())
}

// TestInterrupted checks that an interrupt ends long work, which reports what was done.
func TestInterrupted(t *testing.T) {
	wrongFiles(t)
	status, out, errw := interrupted(t, 400*time.Millisecond, "loopback", "--json", "--size", "8MiB", "--count", "100000")
	var r loopback.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != exitFailure || !r.Interrupted || r.Wrong != 0 || r.Copies > 10000 {
		t.Errorf("status %d, %v, %+v", status, err, r)
	}
	if !strings.HasPrefix(errw, "tegracast loopback: interrupted after ") || !strings.HasSuffix(errw, " of 100000 copies") {
		t.Error(errw)
	}
	status, _, errw = interrupted(t, 100*time.Millisecond, "loopback", "--size", "1GiB")
	if status != exitFailure || !strings.Contains(errw, "after 0 of 10 copies") {
		t.Errorf("while memory is made: status %d\n%s", status, errw)
	}
	status, out, errw = interrupted(t, 100*time.Millisecond, "probe", "one.sdp", "--duration", "1h")
	if status != exitFailure || !strings.Contains(out, "interrupted after ") || !strings.Contains(out, "silence: no packet") {
		t.Errorf("status %d: %s %s", status, out, errw)
	}
}

// TestInterruptedCompiling checks that an interrupt does not wait for the compiler of kernels, which is slow here.
func TestInterruptedCompiling(t *testing.T) {
	standInGPU(t)
	config := programtest.Write(t, "config.yaml", `
memory: cuda
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: isp, device: cuda}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}]
`)
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"serve", "--config", config, "--sdp-dir", t.TempDir()}, exitOK, `"ended before the start" reason="compiling kernels was interrupted"`},
		{[]string{"loopback", "--memory", "cuda"}, exitFailure, "interrupted after 0 of 10 copies"},
	} {
		dir := t.TempDir()
		script := "#!/bin/sh\necho yes >" + dir + "/compiling\nexec sleep 120 >/dev/null 2>&1\n"
		if err := os.WriteFile(filepath.Join(dir, "g++"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		p := exec.Command(programtest.Program(t), c.args...)
		p.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "STATE_DIRECTORY="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir())
		run := programtest.StartCommand(t, p)
		programtest.Await(t, filepath.Join(dir, "compiling"))
		began := time.Now()
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		status := run.Wait(t, time.Minute)
		t.Logf("%s ended after %v", c.args[0], time.Since(began))
		if said := run.Err.String(); status != c.status || !strings.Contains(said, c.says) || c.args[0] == "serve" && !strings.Contains(said, "kernels are being compiled") {
			t.Errorf("%s: status %d, want %d and %q:\n%s", c.args[0], status, c.status, c.says, said)
		}
	}
}
