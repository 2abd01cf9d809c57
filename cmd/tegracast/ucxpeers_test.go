// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestReleasesOfUCX uses the UCX of Debian 12 and that of Debian 13 as sender and receiver, both ways. Frames must arrive
// and be right, and each side must know the other's release.
func TestReleasesOfUCX(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	other, err := vjetson.FetchPackages(t.Context(), runtime.GOARCH, "trixie", slog.Default(), "libucx0")
	if err != nil {
		t.Fatal(err)
	}
	start := func(newer bool, args ...string) *programtest.Process {
		line := append([]string{programtest.Program(t)}, args...)
		if newer {
			if line, err = other.Command(line[0], args...); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command(line[0], line[1:]...)
		c.Env = append(os.Environ(), "UCX_TLS=tcp")
		return programtest.StartCommand(t, c)
	}
	for _, newerSends := range []bool{false, true} {
		at := freePort(t)
		serve := start(newerSends, "serve", "--config", programtest.Write(t, "ucx.yaml", fmt.Sprintf(ucxYAML, at)))
		listens(t, serve, at)
		receive := start(!newerSends, "receive", "--json", "--duration", "5s", "--ucx", at, "--stream", "samples")
		receive.Wait(t, time.Minute)
		var r received
		if err := json.Unmarshal(receive.Out.Bytes(), &r); err != nil || r.Frames == 0 || r.Matched != r.Frames || r.Mismatched > 0 {
			t.Errorf("the newer sends: %v: %v %+v\n%s\n%s", newerSends, err, r, receive.Err.String(), serve.Err.String())
		}
		if r.Release == r.SenderUCX {
			t.Errorf("both have release %s", r.Release)
		}
		t.Logf("from %s to %s: %d frames, %d of them right", r.SenderUCX, r.Release, r.Frames, r.Matched)
		serve.Stop(t)
	}
}

// outage returns how long TestNetworkFails removes the network: longer than either side waits.
func outage() time.Duration {
	if longRun {
		return 30 * time.Second
	}
	return 8 * time.Second
}

// netns makes a network namespace in which programs see its own devices in /sys, as UCX needs.
func netns(t *testing.T, suffix string) (name string) {
	t.Helper()
	name = fmt.Sprintf("tegracast-%d-%s", os.Getpid(), suffix)
	rtptest.IP(t, "netns", "add", name)
	t.Cleanup(func() { rtptest.IP(t, "netns", "delete", name) })
	rtptest.IP(t, "-n", name, "link", "set", "lo", "up")
	return name
}

// TestNetworkFails starts the receiver without a network, then removes the network and restores it. The camera goes on,
// and the receiver gets frames again by itself.
func TestNetworkFails(t *testing.T) {
	programtest.NotShort(t)
	here, there := netns(t, "sends"), netns(t, "receives")
	rtptest.IP(t, "-n", here, "link", "add", "v", "type", "veth", "peer", "name", "v", "netns", there)
	for i, name := range []string{here, there} {
		rtptest.IP(t, "-n", name, "address", "add", fmt.Sprintf("10.9.1.%d/24", i+1), "dev", "v")
	}
	rtptest.IP(t, "-n", here, "link", "set", "v", "up")
	inside := func(name string, args ...string) *exec.Cmd {
		c := exec.Command("ip", append([]string{"netns", "exec", name}, args...)...)
		c.Env = append(os.Environ(), "UCX_TLS=tcp")
		return c
	}
	text := strings.Replace(fmt.Sprintf(ucxYAML, "10.9.1.1:5020"), "web: {listen: none}\n", "", 1)
	serve := programtest.StartCommand(t, inside(here, programtest.Program(t), "serve", "--config", programtest.Write(t, "ucx.yaml", text), "--sdp-dir", t.TempDir()))
	s := sender{serve, func() string {
		out, _ := inside(here, "curl", "-s", "http://127.0.0.1:8080/metrics").Output() // fails at first
		return string(out)
	}}
	receive := programtest.StartCommand(t,
		inside(there, programtest.Program(t), "receive", "--json", "--duration", "10m", "--ucx", "10.9.1.1:5020", "--stream", "samples"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the receiver: %s", receive.Err.String())
		}
	})
	s.awaits(t, "source_frames_total", "camera", 20, false) // the receiver has started while it has no network
	rtptest.IP(t, "-n", there, "link", "set", "v", "up")
	s.awaits(t, "ucx_frames_total", "samples", 20, false)
	rtptest.IP(t, "-n", here, "link", "set", "v", "down")
	captured := s.count("source_frames_total", "camera")
	s.awaits(t, "ucx_receivers", "samples", 0, true)
	time.Sleep(outage())
	if now := s.count("source_frames_total", "camera"); now <= captured {
		t.Errorf("the camera stands still at frame %d", now)
	}
	rtptest.IP(t, "-n", here, "link", "set", "v", "up")
	s.awaits(t, "ucx_receivers", "samples", 1, true)
	s.awaits(t, "ucx_frames_total", "samples", s.count("ucx_frames_total", "samples")+20, false)
	interrupt(t, receive)
	if r := ends(t, receive, exitFailure); r.Connections < 2 || r.Matched != r.Frames || r.Mismatched > 0 {
		t.Errorf("%+v", r)
	}
	serve.Stop(t)
	books(t, serve.Out.String()) // checks the sums
}
