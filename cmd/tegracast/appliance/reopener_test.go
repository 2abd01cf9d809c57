// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// becomes waits until the page shows an output in a state.
func (s *reloads) becomes(t *testing.T, name string, state pipeline.OutputState) outputReport {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		list := s.reports.outputs()
		i := slices.IndexFunc(list, func(o outputReport) bool { return o.Name == name })
		if i >= 0 && list[i].State == state {
			return list[i]
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%s does not become %s: %+v\n%s", name, state, list, s.log.take())
		}
	}
}

// TestARecordingGoesOnWhenItsFolderIsBack checks that a recording is retried by itself, at once by a reload of an
// unchanged file, and at once by a start on the page. It continues in a new file with the counters of before. The output
// beside it goes on.
func TestARecordingGoesOnWhenItsFolderIsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "recordings")
	text := fmt.Sprintf(`
web: {listen: none}
sources: [{name: camera, model: {width: 64, height: 16, rate: 50}}]
isp: [{name: isp, workers: 1}]
outputs:
  - {name: raw, queue: 64, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: rec, record: {directory: %q, sync: 10ms}}
`, rtptest.EvenPorts(t, 1)[0], dir)
	room := func(is bool) {
		t.Helper()
		err := os.RemoveAll(dir)
		if is {
			err = os.Mkdir(dir, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	room(true)
	s := startReloads(t, text)
	again := map[string]func(){
		"by itself": func() {},
		"a reload":  func() { s.put(t, text) },
		"a start": func() {
			if err := s.supervisor.switchOutput(t.Context(), "rec", true); err != nil {
				t.Error(err)
			}
		},
	}
	for name, act := range again {
		s.streaming(t, "rec")
		room(false)
		o := s.becomes(t, "rec", pipeline.Retrying)
		if !strings.Contains(o.Error, "no such file") || o.Since == nil || o.Next == nil || o.Stopped || !o.Record {
			t.Errorf("%s: %+v", name, o)
		}
		if name != "by itself" {
			for o.Next.Sub(*o.Since) < 2*time.Second { // until the pause is long
				time.Sleep(10 * time.Millisecond)
				o = s.becomes(t, "rec", pipeline.Retrying)
			}
		}
		room(true)
		act()
		if s.becomes(t, "rec", pipeline.Running); name != "by itself" && time.Now().After(*o.Next) {
			t.Errorf("%s: it was not tried again before its time", name)
		}
		if s.streaming(t, "rec"); len(recordings(t, dir)) != 1 {
			t.Errorf("%s: files %v", name, recordings(t, dir))
		}
	}
	for _, o := range s.end(t).Outputs {
		if o.Captured != o.Delivered+o.Drops() || o.Name == "raw" && o.Faults > 0 || o.Name == "rec" && o.Faults < 3 {
			t.Errorf("%+v", o)
		}
	}
	if n := s.log.count("output failed"); n == 0 || n > 3 {
		t.Errorf("%d lines of the log tell of it", n)
	}
}

func recordings(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.mcap"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestASourceThatHasEnded checks that the end of a source is no fault and does not affect the others. It is played again
// when one of its outputs is started or opened by a reload. The appliance ends with the last source only if that was
// requested.
func TestASourceThatHasEnded(t *testing.T) {
	dir := t.TempDir()
	clip := programtest.Write(t, "clip.raw", string(bytes.Repeat([]byte{0, 1}, 64*16*5))) // five frames
	text := func(camera, mtu int) string {
		text := fmt.Sprintf(`
web: {listen: none}
memory: host
sources:
  - {name: camera, model: {width: 64, height: 16, rate: 50}}
  - {name: clip, file: {path: %s, width: 64, height: 16, rate: 100, once: true}}
isp: [{name: isp, from: clip, workers: 1}]
outputs:
  - {name: raw, from: isp, rtp: {payload: raw, mtu: %d, destinations: ["127.0.0.1:%d"]}}
  - {name: rec, from: clip, record: {directory: %q}}
  - {name: live, from: camera, record: {directory: %q}}
`, clip, mtu, rtptest.EvenPorts(t, 1)[0], dir, t.TempDir())
		if camera == 0 {
			text = strings.Replace(text, "  - {name: camera, model: {width: 64, height: 16, rate: 50}}\n", "", 1)
			text = text[:strings.Index(text, "  - {name: live")]
		}
		return text
	}
	s := startReloads(t, text(1, 1400))
	played := func(times int) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			st := s.reports.stats()
			i := slices.IndexFunc(st.Outputs, func(o pipeline.OutputStats) bool {
				return o.Name == "rec" && o.Delivered >= uint64(times) && o.State == pipeline.Ended
			})
			j := slices.IndexFunc(st.Sources, func(o pipeline.SourceStats) bool { return o.Name == "clip" && o.Ended })
			if i >= 0 && j >= 0 && len(recordings(t, dir)) == times {
				return
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("it was not played %d times: %+v\n%s", times, st, s.log.take())
			}
		}
	}
	played(1)
	for i, on := range []bool{false, true} {
		if err := s.supervisor.switchOutput(t.Context(), "raw", on); err != nil {
			t.Fatal(err)
		}
		played(1 + i)
	}
	s.put(t, text(1, 1300))
	played(3)
	s.streaming(t, "live")
	var p progress
	now := time.Now()
	if _, err := p.check(s.reports.stats(), now, time.Second), p.check(s.reports.stats(), now.Add(time.Minute), time.Second); err != nil && strings.Contains(err.Error(), "clip") {
		t.Error(err)
	}
	s.end(t)
	if n := s.log.count("played to its end"); n != 3 {
		t.Errorf("the log tells %d times of the end", n)
	}
	for _, exits := range []bool{true, false} {
		s := newReloads(t, text(0, 1400), nil)
		s.runner.exits = exits
		s.begin(t)
		select {
		case err := <-s.ended:
			if !exits || err != nil {
				t.Errorf("exits %v: it has ended: %v", exits, err)
			}
			s.ended <- err
		case <-time.After(map[bool]time.Duration{true: time.Minute, false: 500 * time.Millisecond}[exits]):
			if exits {
				t.Error("it does not end")
			}
		}
		s.end(t)
	}
}
