// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// states returns the outputs that the page lists, with "-" after those that are stopped.
func (s *reloads) states() (list []string) {
	for _, o := range s.reports.outputs() {
		list = append(list, o.Name+strings.Repeat("-", map[bool]int{true: 1}[o.Stopped]))
	}
	return list
}

// streaming waits until an output has delivered three more frames.
func (s *reloads) streaming(t *testing.T, name string) {
	t.Helper()
	frames := func() uint64 {
		all := s.reports.stats().Outputs
		if i := slices.IndexFunc(all, func(o pipeline.OutputStats) bool { return o.Name == name }); i >= 0 {
			return all[i].Delivered
		}
		return 0
	}
	before := frames()
	for began := time.Now(); frames() < before+3; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%s: no frames come", name)
		}
	}
}

// TestStoppedOutput checks that an output that a client has stopped is not in the statistics, sends nothing, and has no
// SDP file, and that the output beside it loses no frame. It runs again when a client starts it, or after a reload, even
// of an unchanged file, but not after a reload that is refused.
func TestStoppedOutput(t *testing.T) {
	var to []string
	for _, p := range rtptest.EvenPorts(t, 3) {
		to = append(to, fmt.Sprint("127.0.0.1:", p))
	}
	text := reloadConfig(t, to, 31, 1.5, 1400)
	s := startReloads(t, text)
	turn := func(name string, on bool) {
		t.Helper()
		if err := s.supervisor.switchOutput(t.Context(), name, on); err != nil {
			t.Fatal(err)
		}
	}
	is := func(when string, want ...string) {
		t.Helper()
		if got := s.states(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	s.streaming(t, "raw3")
	sdp := filepath.Join(s.announcer.dir, "raw3.sdp")
	for range 2 { // the second time it is already stopped
		turn("raw3", false)
	}
	is("stopped", "raw1", "raw2", "raw3-")
	if _, err := os.Stat(sdp); err == nil {
		t.Error("there is an SDP file of a stream that is stopped")
	}
	socket, err := net.ListenPacket("udp", to[2])
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	notInBooks := func(when string) {
		t.Helper()
		if slices.ContainsFunc(s.reports.stats().Outputs, func(o pipeline.OutputStats) bool { return o.Name == "raw3" }) {
			t.Errorf("%s: it is in the books", when)
		}
	}
	notInBooks("stopped")
	s.streaming(t, "raw1")
	_ = socket.SetReadDeadline(time.Now())
	if n, _, err := socket.ReadFrom(make([]byte, 2000)); err == nil {
		t.Errorf("%d bytes were sent", n)
	}
	folder := s.announcer.dir
	s.announcer.dir = filepath.Join(folder, "gone")
	if err := s.supervisor.switchOutput(t.Context(), "raw3", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it starts without a folder of the SDP files: %v", err)
	}
	is("it cannot be started", "raw1", "raw2", "raw3-")
	notInBooks("it cannot be started")
	s.announcer.dir = folder
	turn("raw3", true)
	is("started", "raw1", "raw2", "raw3")
	s.streaming(t, "raw3")
	if _, err := os.Stat(sdp); err != nil {
		t.Error(err)
	}
	for _, o := range s.reports.stats().Outputs {
		if o.Name == "raw1" && o.Drops() > 0 {
			t.Errorf("%s lost %v", o.Name, o.Dropped)
		}
	}
	turn("raw2", false)
	s.put(t, strings.Replace(text, "rate: 10", "rate: ten", 1))
	is("a bad file", "raw1", "raw2-", "raw3")
	s.put(t, strings.Replace(text, to[0], "nowhere.invalid:5004", 1))
	s.streaming(t, "raw1")
	is("a file that cannot be opened", "raw1", "raw2-", "raw3")
	s.put(t, text)
	is("reloaded", "raw1", "raw2", "raw3")
	s.streaming(t, "raw2")
	if err := s.supervisor.switchOutput(t.Context(), "raw9", false); !errors.Is(err, errNoOutput) {
		t.Error(err)
	}
	for _, o := range s.end(t).Outputs {
		if o.Captured != o.Delivered+o.Drops() {
			t.Errorf("%s: %d of %d frames, lost %v", o.Name, o.Delivered, o.Captured, o.Dropped)
		}
	}
}
