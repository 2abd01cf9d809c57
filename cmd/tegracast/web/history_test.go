// SPDX-License-Identifier: Apache-2.0

package web

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// counted is a graph whose statistics a test sets.
type counted struct {
	st   pipeline.Stats
	list []Output
	at   time.Time
}

func newCounted() *counted {
	return &counted{
		st: pipeline.Stats{
			Sources: []pipeline.SourceStats{{Name: "camera"}},
			Stages:  []pipeline.StageStats{{Counts: pipeline.Counts{Name: "isp"}, From: "camera"}},
			Outputs: []pipeline.OutputStats{{Name: "raw", Dropped: map[string]uint64{}}, {Name: "raw view", Delivered: 99}},
		},
		list: []Output{{Name: "raw", From: "isp", OutputStatus: pipeline.OutputStatus{State: pipeline.Running}}},
		at:   time.Unix(1000, 0),
	}
}

func (c *counted) sampler() *sampler {
	s := newSampler(func() pipeline.Stats { return c.st }, func() []Output { return c.list })
	s.now = func() time.Time { return c.at }
	return s
}

// second lets a second pass in which the camera emits 30 frames and the output sends as many, but for those lost.
func (c *counted) second(s *sampler, lost uint64) {
	c.at = c.at.Add(time.Second)
	c.st.Sources[0].Captured += 30
	if len(c.st.Outputs) > 0 {
		o := &c.st.Outputs[0]
		o.Delivered += 30 - lost
		o.Dropped["raw/late"] += lost
		o.Dropped["raw/rate"] += 5
		o.Dropped["isp/queue"]++
		o.Latencies.Count += 30 - lost
		o.Latencies.Sum += time.Duration(30-lost) * 2 * time.Millisecond
	}
	s.take()
}

// now returns the part called name with its history.
func (c *counted) now(t *testing.T, s *sampler, name string) Part {
	t.Helper()
	parts := newParts(&c.st, c.list)
	s.addHistory(parts)
	for _, p := range parts {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no part %s", name)
	return Part{}
}

// TestHistory checks what samples say of rates, losses and delays, also of an output that is stopped and started, and of
// one that is reopened.
func TestHistory(t *testing.T) {
	c := newCounted()
	s := c.sampler()
	s.take()
	begin := c.at
	for range 5 {
		c.second(s, 0)
	}
	if p := c.now(t, s, "raw"); p.Rate != 30 || p.Lost != 0 || p.LostAt != nil || !p.Since.Equal(begin) || p.Frames != 150 || p.From != "isp" {
		t.Errorf("%+v", p)
	}
	c.second(s, 6)
	lossy := c.at
	c.second(s, 0)
	if p := c.now(t, s, "raw"); p.Rate != 28 || p.Lost != 6 || p.Losses["late"] != 6 || len(p.Losses) != 1 || !p.LostAt.Equal(lossy) {
		t.Errorf("%+v", p)
	}
	list, _, _ := s.after(5)
	if len(list) != 3 || list[1].Parts["raw"] != (Change{24, 6, 2000}) || list[2].Parts["camera"] != (Change{30, 0, -1}) || list[0].Seconds != 1 {
		t.Errorf("%+v", list)
	}
	if _, is := list[0].Parts["raw view"]; is {
		t.Error("a view of the page is shown as a part")
	}

	stopped := c.st.Outputs
	c.st.Outputs, c.list[0].State = nil, pipeline.Stopped
	c.second(s, 0)
	if p := c.now(t, s, "raw"); p.State != "stopped" || p.Since != nil || p.Rate != 0 {
		t.Errorf("%+v", p)
	}
	c.second(s, 0)
	c.st.Outputs, c.list[0].State = stopped, pipeline.Running
	c.second(s, 0)
	list, _, _ = s.after(10)
	if p := c.now(t, s, "raw"); len(list) != 1 || list[0].Parts["raw"] != (Change{30, 0, 2000}) || !p.Since.Equal(begin) {
		t.Errorf("after a stop: %+v %+v", list, p)
	}

	c.st.Outputs[0] = pipeline.OutputStats{Name: "raw", Dropped: map[string]uint64{}}
	c.second(s, 1)
	if p := c.now(t, s, "raw"); p.Lost != 1 || p.LostAt != nil || !p.Since.Equal(c.at) {
		t.Errorf("reopened: %+v", p)
	}
	for range keptSamples {
		c.second(s, 0)
	}
	if list, _, _ = s.after(0); len(list) != keptSamples || list[0].Number != 13 || list[keptSamples-1].Number != keptSamples+12 {
		t.Errorf("%d samples, %d to %d", len(list), list[0].Number, list[len(list)-1].Number)
	}
	if list, _, _ = s.after(keptSamples + 13); len(list) != keptSamples {
		t.Errorf("for a number of an earlier process: %d samples", len(list))
	}
}
