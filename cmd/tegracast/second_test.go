// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestSecondInstance checks that a second serve process with the same destination ends at once, and names the first one.
func TestSecondInstance(t *testing.T) {
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 1)
	text := strings.Replace(programtest.Small, "5004", fmt.Sprint(p[0]), 1) + "web: {listen: none}\nrtsp: {listen: none}\n"
	file := programtest.Write(t, "c.yaml", text)
	first := programtest.StartProgram(t, "serve", "--config", file, "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
	second := programtest.StartProgram(t, "serve", "--config", file, "--sdp-dir", t.TempDir())
	status := second.Wait(t, time.Minute)
	want := fmt.Sprintf(`tegracast serve: output "raw": process %d (tegracast) sends to 127.0.0.1:%d already`, first.Process.Pid, p[0])
	if status != exitFailure || !strings.Contains(second.Err.String(), want) {
		t.Errorf("status %d, want %s:\n%s", status, want, second.Err.String())
	}
	first.Stop(t)
}

// TestHangupWithoutAFile checks that SIGHUP ends serve if there is no file to reload, as with --fault, but not if it was
// started by nohup.
func TestHangupWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 2)
	for i, by := range [][]string{{}, {"nohup"}} {
		text := strings.Replace(programtest.Small, "5004", fmt.Sprint(p[i]), 1) + "web: {listen: none}\nrtsp: {listen: none}\n"
		place := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(place, 0o700); err != nil {
			t.Fatal(err)
		}
		words := append(by, programtest.Program(t), "serve", "--config", programtest.Write(t, "c.yaml", text), "--fault", "F2:0", "--sdp-dir", place)
		serve := programtest.Start(t, words[0], words[1:]...)
		programtest.Await(t, filepath.Join(place, "raw.sdp"))
		if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if len(by) > 0 {
			time.Sleep(300 * time.Millisecond) // no output shows that SIGHUP was ignored
			serve.Stop(t)
			if strings.Contains(serve.Err.String(), "SIGHUP") {
				t.Errorf("by nohup:\n%s", serve.Err.String())
			}
		} else if status := serve.Wait(t, time.Minute); status != exitOK || !strings.Contains(serve.Err.String(), "no configuration file to reload") {
			t.Errorf("status %d:\n%s", status, serve.Err.String())
		}
	}
}

// TestInstalledConfiguration checks that an existing file is found, even one that cannot be inspected.
func TestInstalledConfiguration(t *testing.T) {
	file := programtest.Write(t, "tegracast.yaml", good)
	for path, want := range map[string]bool{file: true, file + "/x": true, file + "x": false, filepath.Dir(file): true} {
		if got := there(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	unit, err := os.ReadFile(filepath.Join("..", "..", "systemd", "tegracast.service"))
	if err != nil || !strings.Contains(string(unit), "serve --config "+installedConfig+" $TEGRACAST_OPTIONS\n") {
		t.Errorf("the service does not read %s: %v", installedConfig, err)
	}
}
