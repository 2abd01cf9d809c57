// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const (
	groupRate      = 10
	groupTolerance = 40 * time.Millisecond
)

const groupsYAML = `
memory: host
web: {listen: none}
sources:
  - {name: left, model: {width: 64, height: 48, rate: %[1]d, exposure: 2ms, readout: 5ms, triggered: true, seed: %[3]d1}}
  - {name: right, model: {width: 320, height: 240, rate: %[1]d, exposure: 2ms, readout: 5ms, triggered: true, seed: %[3]d2, faults: {F10: %[4]g}}}
groups:
  - {name: pair, sources: [left, right], rate: %[1]d, tolerance: %[2]s, trigger: true}
outputs:
  - {name: one, from: left, queue: 64, results: {tcp: "127.0.0.1:%[5]d"}}
  - {name: two, from: right, queue: 64, results: {tcp: "127.0.0.1:%[6]d"}}
`

// TestGroups runs two processes with two cameras each, which they trigger by the time of the machine. An instant for which
// the machine is too late has no frames of a process.
func TestGroups(t *testing.T) {
	programtest.NotShort(t)
	rtptest.Need(t, rtptest.Tries(t, func() error { return runGroups(t, 4*time.Second) }))
}

// TestGroupsAMinute is TestGroups for a minute.
func TestGroupsAMinute(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: a minute of four cameras in groups: make test-long-streams")
	}
	rtptest.Need(t, rtptest.Tries(t, func() error { return runGroups(t, time.Minute) }))
}

// groupCamera has the frames of a source by the number of their group, as a client of its output of results sees them.
type groupCamera struct {
	frames map[uint64]report.Report
	alone  int // frames without a number
	done   chan error
}

// watchGroups takes the frames of an output until it ends.
func watchGroups(t *testing.T, port int) *groupCamera {
	t.Helper()
	var conn net.Conn
	for begin := time.Now(); conn == nil; time.Sleep(5 * time.Millisecond) {
		var err error
		if conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil && time.Since(begin) > time.Minute {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &groupCamera{frames: map[uint64]report.Report{}, done: make(chan error, 1)}
	go func() {
		for lines := json.NewDecoder(conn); ; {
			var r report.Report
			if lines.Decode(&r) != nil {
				c.done <- nil
				return
			}
			if _, twice := c.frames[r.Group]; r.Group == 0 {
				c.alone++
			} else if twice {
				c.done <- fmt.Errorf("two frames of group %d", r.Group)
				return
			} else {
				c.frames[r.Group] = r
			}
		}
	}()
	return c
}

// groupBooks matches the line of the final report: groups, complete, incomplete, the reasons, missed triggers.
var groupBooks = regexp.MustCompile(`(?m)^pair: (\d+) groups = complete (\d+) \+ incomplete (\d+)(?: \(right damaged (\d+)\))?(?:; triggers missed (\d+), refused 0)?$`)

// runGroups checks that every group of two processes is complete, but for the frames that a fault of one camera damages,
// and that their books say so. Its error means that the machine was too slow for the exposures.
func runGroups(t *testing.T, length time.Duration) error {
	ports := rtptest.EvenPorts(t, 4)
	var processes []*programtest.Process
	var cameras []*groupCamera
	for i, faults := range []float64{0, 0.1} {
		text := fmt.Sprintf(groupsYAML, groupRate, groupTolerance, i+1, faults, ports[2*i], ports[2*i+1])
		processes = append(processes, programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "groups.yaml", text), "--sdp-dir", t.TempDir()))
	}
	for _, port := range ports {
		cameras = append(cameras, watchGroups(t, port))
	}
	time.Sleep(length)
	for _, p := range processes {
		_ = p.Process.Signal(syscall.SIGTERM)
	}
	var slow error
	damaged, missed := 0, make([]int, len(processes))
	for i, p := range processes {
		p.Need(t, time.Minute)
		m := groupBooks.FindStringSubmatch(p.Out.String())
		if m == nil {
			slow = fmt.Errorf("frames are outside of the groups, or late:\n%s", p.Out.String())
			continue
		}
		n := make([]int, len(m))
		for k := 1; k < len(m); k++ {
			n[k], _ = strconv.Atoi(m[k])
		}
		missed[i] = n[5]
		if strings.Contains(p.Out.String(), "missed_trigger") { // the model's cameras are part of this machine
			slow = errors.Join(slow, errors.New("triggers come while frames are exposed"))
		}
		crc := strings.Count(p.Err.String(), "do not match the FPGA's CRC")
		if n[1] != n[2]+n[3] || n[3] != n[4] || i == 0 && n[3] > 0 || i == 1 && n[3] == 0 || n[4] > crc {
			t.Errorf("%s\nof %d damaged frames", m[0], crc)
		}
		damaged += n[4]
	}
	for _, c := range cameras {
		if err := <-c.done; err != nil {
			t.Error(err)
		}
	}
	if slow != nil || t.Failed() {
		return slow
	}
	checkGroups(t, cameras, damaged, missed, length)
	return nil
}

// checkGroups joins the frames of all cameras by the numbers of their groups. The last camera has damaged frames. Each
// process, with two cameras, has missed triggers.
func checkGroups(t *testing.T, cameras []*groupCamera, damaged int, missed []int, length time.Duration) {
	t.Helper()
	from, to := uint64(0), ^uint64(0)
	for _, c := range cameras {
		all := slices.Sorted(maps.Keys(c.frames))
		if len(all) == 0 || c.alone > 0 {
			t.Fatalf("%d frames in groups, %d in none", len(all), c.alone)
		}
		from, to = max(from, all[0]), min(to, all[len(all)-1])
	}
	instants := group.Instants(pipeline.Rate{Num: groupRate, Den: 1})
	lacking, complete := 0, 0
	for n := from; n <= to; n++ {
		there := 0
		for i, c := range cameras {
			r, is := c.frames[n]
			_, neighbour := cameras[i^1].frames[n]
			switch off := r.Captured.Sub(instants.At(n)); {
			case !is && !neighbour:
				missed[i/2] -= i % 2 // once for both
			case !is && i == len(cameras)-1:
				lacking++
			case !is:
				t.Errorf("camera %d has no frame of group %d", i, n)
			case off.Abs() > groupTolerance:
				t.Errorf("camera %d, group %d: a frame is off by %v", i, n, off)
			default:
				there++
			}
		}
		if there == len(cameras) {
			complete++
		}
	}
	if least := int(length.Seconds()) * groupRate / 8; slices.Min(missed) < 0 || complete < least {
		t.Errorf("%d complete groups in %v; more instants without frames than missed triggers: %d", complete, length, missed)
	}
	if lacking > damaged {
		t.Errorf("the last camera has no frame in %d groups, the books say %d", lacking, damaged)
	}
	t.Logf("%d groups: %d complete, %d without the frame of the last camera, the others of missed triggers", to-from+1, complete, lacking)
}
