// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
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

// TestTheSystemClock reads it.
func TestTheSystemClock(t *testing.T) {
	before := time.Now()
	ns, at, unsure, err := systemClock{}.Read()
	if err != nil || at.Before(before) || at.After(time.Now()) || ns != at.UnixNano() || unsure <= 0 {
		t.Errorf("%d %v %v %v", ns, at, unsure, err)
	}
}
