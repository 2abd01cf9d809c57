// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

var soak = flag.Duration("soak", 0, "how long TestSoak streams the model's camera, such as 1h")

// TestSoak streams for a long time, without and with the race detector. Memory must not grow, and in the end every frame
// must be accounted for, from the camera to the receiver.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("NEEDS time: make soak, or -args -soak 1h")
	}
	plain := programtest.Program(t)
	p := rtptest.EvenPorts(t, 2)
	for i, tt := range []struct {
		name, program string
		growth        float64
	}{{"plain", plain, plainGrowth}, {"race", raceProgram(t), raceGrowth}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			soakHost(t, tt.program, p[i], tt.growth)
		})
	}
}

// Limits of the growth of memory from the first third to the end, in KiB. The race detector keeps 0.3 KiB of every
// goroutine ever started, and the sender's timer starts some 20 per second.
const (
	plainGrowth = 8 << 10
	raceGrowth  = 64 << 10
)

// raceProgram builds the program with the race detector, which ends it with status 66 after a race.
func raceProgram(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "tegracast")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return exe
}

// soakHost streams to a receiver that runs from before the first packet until after the last.
func soakHost(t *testing.T, exe string, port int, growth float64) {
	dir := t.TempDir()
	sdp := filepath.Join(dir, "raw.sdp")
	args := []string{"serve", "--sdp-dir", dir, "--config", programtest.Write(t, "config.yaml", fmt.Sprintf(`
web: {listen: none}
sources:
  - name: camera
    model: {width: 320, height: 240, rate: 30}
isp:
  - {name: isp}
outputs:
  - name: raw
    rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}
`, port))}
	first := programtest.Start(t, exe, args...) // writes the stream's description
	programtest.Await(t, sdp)
	first.Stop(t)
	receiver := programtest.StartProgram(t, "probe", "--sdp", sdp, "--duration", "1000h", "--json")
	programtest.Listening(t, receiver.Process.Pid, port)
	appliance := programtest.Start(t, exe, args...)
	flat(t, *soak, growth, []string{"resident"}, func() ([]float64, string) {
		return []float64{programtest.Resident(t, appliance.Process.Pid)}, ""
	})
	appliance.Stop(t)
	account(t, appliance.Out.String(), receiver, port)
}

// account checks that the counts of camera, output and receiver agree. A packet that was not received must have been
// dropped by the kernel at the receiver's socket, which counts that.
func account(t *testing.T, summary string, receiver *programtest.Process, port int) {
	t.Helper()
	got, overflow := receiver.Received(t, port)
	n := books(t, summary)["raw"]
	sent, delivered := got.Packets+got.Lost, uint64(n[1])
	t.Logf("captured %d = delivered %d + dropped %d; received %d frames, %d CRCs right; %d packets, %d lost, %d drops at the receiver's socket\n%s",
		n[0], n[1], n[2], got.Frames, got.Matched, got.Packets, got.Lost, overflow, summary)
	if delivered == 0 || sent%delivered != 0 {
		t.Errorf("%d packets are no whole number of packets for each of %d frames", sent, delivered)
	}
	if !got.Blames(overflow) || got.Frames+got.Damaged > delivered || got.Frames+got.Lost < delivered {
		t.Errorf("%d frames sent; %d packets lost, and the receiver's socket counts %d: %+v", delivered, got.Lost, overflow, got)
	}
	if got.Matched != got.Frames && overflow == 0 || got.Mismatched+got.Malformed+got.Foreign+got.Duplicates > 0 || !got.Ended {
		t.Errorf("not every frame is right, or no BYE came: %+v", got)
	}
	destinations := regexp.MustCompile(`(?m)^raw to .*: frames sent (\d+), incomplete (\d+), packets refused (\d+)`).FindAllStringSubmatch(summary, -1)
	if len(destinations) == 0 {
		t.Errorf("no destination in %s", summary)
	}
	for _, m := range destinations {
		if m[1] != strconv.Itoa(n[1]) || m[2] != "0" || m[3] != "0" {
			t.Errorf("%d frames were delivered: %s", delivered, m[0])
		}
	}
}

// flat samples memory in KiB every ten seconds, logs one sample a minute, and fails if one of them has grown by more than
// growth since the first third of the time.
func flat(t *testing.T, span time.Duration, growth float64, what []string, sample func() (kib []float64, more string)) {
	t.Helper()
	var at []float64 // s
	sizes := make([][]float64, len(what))
	var told time.Time
	for begin := time.Now(); time.Since(begin) < span; {
		time.Sleep(min(10*time.Second, span/30))
		kib, more := sample()
		d := time.Since(begin)
		if time.Since(told) >= time.Minute {
			told = time.Now()
			t.Logf("%v: %v %.0f KiB%s", d.Round(time.Second), what, kib, more)
		}
		if d < span/3 { // not yet in a steady state
			continue
		}
		at = append(at, d.Seconds())
		for i := range what {
			sizes[i] = append(sizes[i], kib[i])
		}
	}
	for i, size := range sizes {
		first, last := size[0], size[len(size)-1]
		t.Logf("%v: %s %.0f KiB, %.0f at last, slope %.0f KiB an hour", span, what[i], first, last, slope(at, size)*3600)
		if last-first > growth {
			t.Errorf("%s has grown by %.0f KiB", what[i], last-first)
		}
	}
}

// slope returns the slope of the least-squares line.
func slope(x, y []float64) float64 {
	var mx, my, xy, xx float64
	for i := range x {
		mx, my = mx+x[i]/float64(len(x)), my+y[i]/float64(len(y))
	}
	for i := range x {
		xy, xx = xy+(x[i]-mx)*(y[i]-my), xx+(x[i]-mx)*(x[i]-mx)
	}
	return xy / xx
}
