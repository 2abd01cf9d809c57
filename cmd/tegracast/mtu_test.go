// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const mtuYAML = `
web: {listen: none}
rtsp: {listen: none}
sources:
  - name: camera
    model: {width: 640, height: 64, rate: 20}
isp:
  - {name: colour, from: camera}
outputs:
  - name: raw
    rtp: {payload: raw, destinations: ["10.9.2.2:5004"], checksum: true}
`

// comesWhole probes until a frame arrives complete. A slow machine loses packets of most frames, a faulty path of every
// frame.
func comesWhole(t *testing.T, probe func() *programtest.Process) {
	t.Helper()
	var v programtest.Verdict
	for range 20 {
		p := probe()
		p.Wait(t, time.Minute) // its status reports losses
		if v = p.Verdict(t); v.Matched > 0 {
			return
		}
	}
	t.Errorf("no frame came whole: %+v", v)
}

// TestNarrowPath streams over paths of 1,400 bytes, as with VPNs, and of 1,300 after a reload, without a packet size in
// the configuration.
func TestNarrowPath(t *testing.T) {
	here, there := netns(t, "wide"), netns(t, "narrow")
	rtptest.IP(t, "-n", here, "link", "add", "v", "type", "veth", "peer", "name", "v", "netns", there)
	rtptest.IP(t, "-n", here, "address", "add", "10.9.2.1/24", "dev", "v")
	rtptest.IP(t, "-n", there, "address", "add", "10.9.2.2/24", "dev", "v")
	rtptest.IP(t, "-n", here, "link", "set", "v", "mtu", "1400", "up")
	rtptest.IP(t, "-n", there, "link", "set", "v", "up")
	inside := func(name string, args ...string) *exec.Cmd {
		return exec.Command("ip", append([]string{"netns", "exec", name, programtest.Program(t)}, args...)...)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	serve := inside(here, "serve", "--config", programtest.Write(t, "mtu.yaml", mtuYAML), "--sdp-dir", dir)
	program := programtest.Start(t, "sh", append([]string{"-c", `exec "$@" 2>"$0"`, log}, serve.Args...)...)
	sdp := filepath.Join(dir, "raw.sdp")
	programtest.Await(t, sdp)
	said := 0
	says := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			all, err := os.ReadFile(log)
			if _, behind, found := strings.Cut(string(all[said:]), text); found {
				said = len(all) - len(behind)
				return
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("serve does not say %q: %s, %v", text, all, err)
			}
		}
	}
	whole := func() {
		t.Helper()
		comesWhole(t, func() *programtest.Process {
			return programtest.StartCommand(t, inside(there, "probe", "--json", "--sdp", sdp, "--duration", "1s"))
		})
	}
	becomes := func(mtu string) {
		t.Helper()
		rtptest.IP(t, "-n", here, "link", "set", "v", "mtu", mtu)
		if err := program.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	says("bytes=1400")
	whole()
	becomes("1300")
	says("bytes=1300")
	says("outputs[raw]: path")
	whole()
	becomes("9000")
	says("configuration reloaded")
	program.Stop(t)
	got, captured := reloadedBooks(t, program.Out.String())
	if n := got["raw"]; n[1] == 0 || n[0] > captured || n[0] < captured/2 {
		t.Errorf("the summary: %v of %d frames", n, captured)
	}
}
