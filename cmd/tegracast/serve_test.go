// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// books returns each output's counts from the summary: frames captured, delivered and dropped. It checks that they add
// up, and that they cover all frames that the camera has captured.
func books(t *testing.T, out string) map[string][3]int {
	t.Helper()
	got, captured := reloadedBooks(t, out)
	for name, n := range got {
		if n[0] != captured {
			t.Errorf("%s has seen %d frames, the camera captured %d", name, n[0], captured)
		}
	}
	return got
}

// reloadedBooks is like books for outputs that a reload has reopened, which have missed the frames in between.
func reloadedBooks(t *testing.T, out string) (got map[string][3]int, captured int) {
	t.Helper()
	got = map[string][3]int{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+): captured (\d+) = delivered (\d+) \+ dropped (\d+)`).FindAllStringSubmatch(out, -1) {
		var n [3]int
		for i := range n {
			n[i], _ = strconv.Atoi(m[i+2])
		}
		if n[0] != n[1]+n[2] {
			t.Errorf("%s: the sum does not add up", m[0])
		}
		got[m[1]] = n
	}
	source := regexp.MustCompile(`(?m)^camera: captured (\d+), lost`).FindStringSubmatch(out)
	if source == nil {
		t.Fatalf("no source in the summary:\n%s", out)
	}
	captured, _ = strconv.Atoi(source[1])
	return got, captured
}

// TestDefaultStream receives the default appliance, 1080p at 30 frames per second, for ten seconds. Nothing may be lost,
// and every CRC must be right.
func TestDefaultStream(t *testing.T) { programtest.Quiet(t, defaultStream) }

func defaultStream(t *testing.T) error {
	seconds := 10
	if testing.Short() {
		seconds = 4
	}
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 2)
	text := strings.NewReplacer(":5004", fmt.Sprint(":", p[0]), ":5006", fmt.Sprint(":", p[1])).Replace(string(config.Default()))
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "default.yaml", text), "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "jpeg.sdp"))
	raw := programtest.StartProgram(t, "probe", "--sdp", filepath.Join(dir, "raw.sdp"), "--duration", fmt.Sprint(seconds, "s"), "--json")
	jpeg := programtest.StartProgram(t, "probe", "--sdp", filepath.Join(dir, "jpeg.sdp"), "--duration", fmt.Sprint(seconds, "s"), "--json")
	var lossy error
	for name, probe := range map[string]*programtest.Process{"raw": raw, "jpeg": jpeg} {
		status := probe.Wait(t, time.Minute)
		v := probe.Verdict(t)
		t.Logf("%s: %d frames, latency %v", name, v.Frames, v.Latency)
		least := uint64(seconds) * map[string]uint64{"raw": 30, "jpeg": 10}[name] * 95 / 100 // less the first one, which was in progress
		if v.Mismatched > 0 {
			t.Errorf("%s: wrong pixels in %d frames", name, v.Mismatched)
		}
		if status != 0 || !v.Clean || v.Lost != 0 || v.Matched != v.Frames || v.Frames < least {
			lossy = fmt.Errorf("%s: status %d, %+v", name, status, v)
		}
	}
	serve.Stop(t)
	n := books(t, serve.Out.String())
	if len(n) != 2 || !strings.Contains(serve.Out.String(), "cpu: ") {
		t.Errorf("summary:\n%s", serve.Out.String())
	}
	t.Log(serve.Out.String())
	return lossy
}

const twoYAML = `
memory: host
sources:
  - name: camera
    model: { width: 320, height: 240, rate: 60 }
isp:
  - name: isp
outputs:
  - name: one
    rtp: { payload: raw, destinations: ["127.0.0.1:%d"], checksum: true }
  - name: two
    rtp: { payload: raw, destinations: ["127.0.0.1:%d", "127.0.0.1:%d"], checksum: true }
`

// TestKilledReceiver checks that killing a receiver disturbs neither its stream's other destination nor the other output.
func TestKilledReceiver(t *testing.T) { programtest.Quiet(t, killedReceiver) }

func killedReceiver(t *testing.T) error {
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 3)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "two.yaml", fmt.Sprintf(twoYAML, p[0], p[1], p[2])), "--sdp-dir", dir)
	one, two, other := filepath.Join(dir, "one.sdp"), filepath.Join(dir, "two.sdp"), filepath.Join(dir, "other.sdp")
	programtest.Await(t, two)
	retarget(t, two, other, p[1], p[2])
	victim := programtest.StartProgram(t, "probe", "--sdp", two, "--duration", "60s", "--json")
	witnesses := []*programtest.Process{
		programtest.StartProgram(t, "probe", "--sdp", one, "--duration", "4s", "--json"),
		programtest.StartProgram(t, "probe", "--sdp", other, "--duration", "4s", "--json"),
	}
	time.Sleep(1500 * time.Millisecond)
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var lossy error
	for i, w := range witnesses {
		status := w.Wait(t, time.Minute)
		if v := w.Verdict(t); status != 0 || v.Frames < 150 || v.Matched != v.Frames {
			lossy = fmt.Errorf("witness %d: status %d, %+v", i, status, v)
		}
	}
	serve.Stop(t)
	if n := books(t, serve.Out.String()); n["one"][1] < 200 || n["two"][1] < 200 {
		lossy = errors.Join(lossy, fmt.Errorf("summary:\n%s", serve.Out.String()))
	}
	return lossy
}

func TestProbeOfSilence(t *testing.T) {
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 3)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "two.yaml", fmt.Sprintf(twoYAML, p[0], p[1], p[2])), "--sdp-dir", dir)
	sdp := filepath.Join(dir, "one.sdp")
	programtest.Await(t, sdp)
	serve.Stop(t)
	status, out, _ := runs(t, "probe", "--sdp", sdp, "--duration", "200ms")
	if status != exitFailure || !strings.Contains(out, "silence: no packet") {
		t.Errorf("status %d, %s", status, out)
	}
}

const bareYAML = `
memory: host
sources:
  - {name: c1, model: {stream: bare, width: 320, height: 240, rate: 9}}
  - {name: c2, model: {stream: bare, width: 328, height: 242, rate: 9}}
  - {name: c3, model: {stream: bare, width: 808, height: 606, rate: 9}}
  - {name: c4, model: {stream: bare, width: 1920, height: 1080, rate: 8}}
isp: [{name: p1, from: c1}, {name: p2, from: c2}, {name: p3, from: c3}, {name: p4, from: c4}]
outputs:
  - {name: o1, from: p1, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: o2, from: p2, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: o3, from: p3, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: o4, from: p4, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
`

// TestBareStream receives streams without camera block and trailers with their pixels, including frames whose size is no
// multiple of 64 bytes. A slow machine may lose some frames.
func TestBareStream(t *testing.T) {
	programtest.NotShort(t)
	programtest.Quiet(t, bareStreamed)
}

func bareStreamed(t *testing.T) error {
	dir, ports := t.TempDir(), rtptest.EvenPorts(t, 4)
	yaml := fmt.Sprintf(bareYAML, ports[0], ports[1], ports[2], ports[3])
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "bare.yaml", yaml), "--sdp-dir", dir)
	args := []string{"probe", "--duration", "9s", "--json"}
	for n := range ports {
		args = append(args, filepath.Join(dir, fmt.Sprintf("o%d.sdp", n+1)))
		programtest.Await(t, args[len(args)-1])
	}
	probe := programtest.StartProgram(t, args...)
	status := probe.Wait(t, time.Minute)
	serve.Stop(t)
	var slow error
	got := 0
	for results := json.NewDecoder(strings.NewReader(probe.Out.String())); results.More(); {
		var v programtest.Verdict
		if err := results.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if v.Mismatched > 0 {
			t.Errorf("wrong pixels in %d frames", v.Mismatched)
		}
		if v.Matched < 60 {
			slow = errors.Join(slow, fmt.Errorf("status %d, %+v", status, v))
		}
		got++
	}
	if got != len(ports) {
		t.Errorf("%d results, want %d: %s", got, len(ports), probe.Out.String())
	}
	return slow
}

// TestServeEndsSoonWhenFramesAreRare checks that at a frame per minute the program still ends soon after SIGTERM, with
// exact counts and a BYE.
func TestServeEndsSoonWhenFramesAreRare(t *testing.T) {
	dir, port := t.TempDir(), rtptest.EvenPorts(t, 1)[0]
	receiver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	file := programtest.Write(t, "a.raw", strings.Repeat("\x00", 2*64*64))
	serve := programtest.StartProgram(t, "serve", "--sdp-dir", dir, "--config", programtest.Write(t, "rare.yaml", fmt.Sprintf(`
memory: host
web: {listen: none}
sources: [{name: camera, file: {path: %s, width: 64, height: 64, rate: 1/60}}]
isp: [{name: isp}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}]
`, file, port)))
	if err := receiver.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := receiver.Read(make([]byte, 1500)); err != nil {
		t.Fatalf("the first frame does not come: %v", err)
	}
	began := time.Now()
	serve.Stop(t)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v to end", took)
	}
	if n := books(t, serve.Out.String()); n["raw"] != [3]int{1, 1, 0} {
		t.Errorf("books:\n%s", serve.Out.String())
	}
}

// TestServeOutlivesItsReader checks that `serve 2>&1 | head -1` streams on after head has ended, and ends with BYE.
func TestServeOutlivesItsReader(t *testing.T) {
	dir, port := t.TempDir(), rtptest.EvenPorts(t, 1)[0]
	file := goodYAML(t, "5004", fmt.Sprint(port))
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programtest.Program(t), "serve", "--config", file, "--sdp-dir", dir)
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	writer.Close()
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
	reader.Close()
	probe := programtest.StartProgram(t, "probe", "--sdp", filepath.Join(dir, "raw.sdp"), "--duration", "1h", "--json")
	programtest.Listening(t, probe.Process.Pid, port)
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // makes it log
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve: %v", err)
	}
	if got, _ := probe.Received(t, port); got.Byes != 1 {
		t.Errorf("no BYE: %+v", got)
	}
}
