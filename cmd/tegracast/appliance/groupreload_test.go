// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// groupConfig returns a configuration of two cameras that a group triggers.
func groupConfig(ports []int, exposure, groups string) string {
	return fmt.Sprintf(`
web: {listen: none}
groups: [%s]
sources:
  - {name: left, model: {width: 64, height: 16, rate: 50, readout: 0s, exposure: 1ms, triggered: true}}
  - {name: right, model: {width: 64, height: 16, rate: 50, readout: 0s, exposure: %s, triggered: true}}
outputs:
  - {name: one, from: left, results: {udp: ["127.0.0.1:%d"]}}
  - {name: two, from: right, results: {udp: ["127.0.0.1:%d"]}}
`, groups, exposure, ports[0], ports[1])
}

// TestGroupsAreReloaded checks that a group triggers its cameras, that a camera that is opened again comes back to it and
// is missing in the groups between, if there are any, and that changes of the groups open no camera again.
func TestGroupsAreReloaded(t *testing.T) {
	const pair = "{name: pair, sources: [left, right], rate: 50, tolerance: 9ms, trigger: true}"
	ports := rtptest.EvenPorts(t, 2)
	s := startReloads(t, groupConfig(ports, "1ms", pair))
	complete := func() uint64 { return s.groups.Books()[0].Complete }
	eventually(t, "complete groups", func() bool { return complete() > 5 })
	left, right, before := s.flows.find("left"), s.flows.find("right"), s.groups.Books()[0]
	s.put(t, groupConfig(ports, "2ms", pair))
	if s.flows.find("left") != left || s.flows.find("right") == right {
		t.Error("the right camera is to be opened again, and nothing else")
	}
	eventually(t, "the camera is back", func() bool { return complete() > before.Complete+5 })
	if b := s.groups.Books()[0]; b.Members[1].Missing["stopped"] != b.Incomplete-before.Incomplete || b.Members[0].Missing["stopped"] > 0 {
		t.Errorf("%+v", b)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&groupMetrics{s.groups})
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	if n, err := testutil.GatherAndCount(registry, "tegracast_group_complete_total", "tegracast_group_missed_triggers_total"); n != 2 || err != nil {
		t.Error(n, err)
	}
	left, right = s.flows.find("left"), s.flows.find("right")
	s.put(t, groupConfig(ports, "2ms", strings.Replace(pair, "9ms", "8ms", 1)))
	if b := s.groups.Books()[0]; b.Members[1].Missing["stopped"] > 0 {
		t.Errorf("another tolerance: the books must begin anew: %+v", b)
	}
	eventually(t, "groups of another tolerance", func() bool { return complete() > 5 })
	s.put(t, groupConfig(ports, "2ms", ""))
	if n := len(s.groups.Books()); n > 0 {
		t.Errorf("%d groups are left", n)
	}
	if s.flows.find("left") != left || s.flows.find("right") != right {
		t.Error("reloads of groups opened a camera again")
	}
	s.put(t, groupConfig(ports, "2ms", pair))
	eventually(t, "groups again", func() bool { return complete() > 5 })
	s.end(t)
	if b := s.groups.Books()[0]; b.Open > 0 || b.Members[0].Frames == 0 {
		t.Errorf("%+v", b)
	}
}
