// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestCamerasFollowTheClock opens a model whose clock follows this machine's, and looks at everything that says so. A
// clock that is not there leaves the cameras as they are.
func TestCamerasFollowTheClock(t *testing.T) {
	for source, want := range map[string]string{
		"system":            "clock of camera: system, slewing, ",
		"phc:/nowhere/ptp0": "clock of camera: phc:/nowhere/ptp0, waiting, rate +0 ppb, steps 0",
	} {
		c, err := config.Parse("c.yaml", []byte(programtest.Small+"\nclock: {source: \""+source+"\"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		log := &logLines{}
		a, err := Open(Env{Out: io.Discard, Log: slog.New(slog.NewTextHandler(log, nil))}, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if all := a.sinks.cards.clocks(); len(all) != 1 || !strings.HasPrefix(all[0].String(), want) {
			t.Errorf("%v, want %s", all, want)
		}
		if v := a.status.view(); !strings.Contains(strings.Join(v.Loops, "\n"), want) {
			t.Errorf("the status is %q", v.Loops)
		}
		if list := pageClocks(a.sinks.cards.clocks()); list[0].Card != "camera" || list[0].Source != source {
			t.Errorf("the page has %+v", list)
		}
		metrics := make(chan prometheus.Metric, 100)
		(&hardwareMetrics{a.sinks.cards, a.flows}).Collect(metrics)
		close(metrics)
		names := ""
		for m := range metrics {
			names += m.Desc().String()
		}
		if strings.Contains(names, "fpga_clock_offset_seconds") != (source == "system") || !strings.Contains(names, "tegracast_fpga_clock_state") {
			t.Errorf("%s: the metrics are %s", source, names)
		}
		if missing := strings.Contains(log.take(), "there is no such clock"); missing != (source != "system") {
			t.Errorf("%s: the log says that there is none: %v", source, missing)
		}
		if err := a.finish(nil); err != nil {
			t.Error(err)
		}
		if all := a.sinks.cards.clocks(); len(all) != 0 {
			t.Errorf("after the end: %v", all)
		}
	}
}

// TestBareStreamsHaveNoClock checks that nothing follows on a card with bare streams alone, and that a camera that comes
// later on such a card has one.
func TestBareStreamsHaveNoClock(t *testing.T) {
	log := &logLines{}
	closed := 0
	cs := &cards{clock: &config.Clock{Source: "system"}, log: slog.New(slog.NewTextHandler(log, nil)), list: map[string]openCard{}}
	cs.add("/dev/fpga", openCard{capture.NewCard(capture.Hardware{}), nil, func() error { closed++; return nil }})
	source := func(name string, bare bool) *config.Source {
		return &config.Source{Name: name, Bare: bare, Card: config.Card{Name: "/dev/fpga"}}
	}
	cs.follow(source("bare", true))
	if all := cs.clocks(); len(all) != 0 || !strings.Contains(log.take(), "a bare stream has no clock that could follow") {
		t.Errorf("%v", all)
	}
	cs.follow(source("left", false))
	cs.follow(source("right", false))
	if all := cs.clocks(); len(all) != 1 || all[0].Card != "/dev/fpga" {
		t.Errorf("%v", all)
	}
	if err := cs.list["/dev/fpga"].close(); err != nil || closed != 1 || len(cs.clocks()) != 0 {
		t.Errorf("%v, closed %d times, %v", err, closed, cs.clocks())
	}
}

// TestAClockChanges checks that another clock reopens the cards and their sources.
func TestAClockChanges(t *testing.T) {
	of := func(section string) *config.Appliance {
		t.Helper()
		c, err := config.Parse("c.yaml", []byte(programtest.Small+section))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	none, system, phc := of(""), of("\nclock: {source: system}"), of("\nclock: {source: phc:/dev/ptp0}")
	for _, change := range [][2]*config.Appliance{{none, system}, {system, none}, {system, phc}} {
		if p := planned(change[0], change[1]); !p.flows["camera"] || !p.cards["camera"] || p.memory || p.web {
			t.Errorf("%+v", p)
		}
		if list := config.Changes(change[0], change[1]); len(list) != 1 || !strings.HasPrefix(list[0], "clock") {
			t.Errorf("%v", list)
		}
	}
	if p := planned(phc, phc); len(p.flows)+len(p.cards) != 0 {
		t.Errorf("%+v", p)
	}
}

// TestAClockIsReloaded runs cameras without a clock, with one, and without again: what the results say, and that nobody
// keeps the cards.
func TestAClockIsReloaded(t *testing.T) {
	lines, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	p := rtptest.EvenPorts(t, 3)
	text := reloadConfig(t, []string{fmt.Sprint("127.0.0.1:", p[0]), fmt.Sprint("127.0.0.1:", p[1]), fmt.Sprint("127.0.0.1:", p[2])}, 31, 1.5, 1400) +
		fmt.Sprintf("  - {name: lines, from: isp1, results: {udp: [%q]}}\n", lines.LocalAddr())
	s := startReloads(t, text)
	says := func(clock bool) {
		t.Helper()
		_ = lines.SetReadDeadline(time.Now().Add(time.Minute))
		for b := make([]byte, 65536); ; {
			n, err := lines.Read(b)
			if err != nil {
				t.Fatalf("no line says it: %v\n%s", err, s.log.take())
			}
			var r report.Report
			if err := json.Unmarshal(b[:n], &r); err != nil {
				t.Fatal(err)
			}
			if (r.Clock != nil) != clock {
				continue // of before the reload
			}
			if age := time.Since(r.Captured); age < 0 || age > time.Minute || clock && (r.Clock.Source != "system" || r.Clock.Steps != 1) {
				t.Errorf("%s", b[:n])
			}
			return
		}
	}
	says(false)
	s.put(t, text+"clock: {source: system}\n")
	says(true)
	if all := s.sinks.cards.clocks(); len(all) != 2 {
		t.Errorf("%v", all)
	}
	s.put(t, text)
	says(false)
	if all := s.sinks.cards.clocks(); len(all) != 0 {
		t.Errorf("%v", all)
	}
	s.end(t)
}

// TestTheSystemClock reads it.
func TestTheSystemClock(t *testing.T) {
	before := time.Now()
	ns, at, unsure, err := systemClock{}.Read()
	if err != nil || at.Before(before) || at.After(time.Now()) || ns != at.UnixNano() || unsure <= 0 {
		t.Errorf("%d %v %v %v", ns, at, unsure, err)
	}
}
