// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

const (
	samplePeriod = time.Second
	keptSamples  = 300 // five minutes
	rateSamples  = 3   // samples over which History.Rate is taken
)

// A Sample holds what each part did since the sample before.
type Sample struct {
	Number  uint64            `json:"number"` // from 1 on
	Time    time.Time         `json:"time"`
	Seconds float64           `json:"seconds"` // since the sample before
	Parts   map[string]Change `json:"parts"`   // by name
}

// A Change holds the frames that a part has emitted, processed or delivered, those that it has lost, and the mean delay
// of the former in microseconds, or -1 without such a frame.
type Change [3]int64

// A sampler takes a sample once per samplePeriod and keeps the latest ones.
type sampler struct {
	*tail[Sample]
	stats func() pipeline.Stats
	list  func() []Output
	now   func() time.Time

	counting sync.Mutex
	counters map[string]counters // of each part, at the latest sample
	taken    time.Time           // time of the latest sample; zero: none

	sharing  sync.Mutex
	shared   json.RawMessage // Config.sharedStatus
	sharedAt uint64          // number of the sample for which shared was taken
}

// counters holds the counters of a part, and the times that History reports.
type counters struct {
	frames, lost, delays uint64
	delay                time.Duration // sum
	since                time.Time
	lostAt               *time.Time
}

func newSampler(stats func() pipeline.Stats, list func() []Output) *sampler {
	return &sampler{tail: newTail[Sample](keptSamples), stats: stats, list: list, now: time.Now}
}

// run takes samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		s.take()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// take takes a sample. The first one only has the parts' names, because there is nothing to compare with.
func (s *sampler) take() {
	st := s.stats()
	parts := newParts(&st, s.list())
	s.counting.Lock()
	defer s.counting.Unlock()
	now := s.now()
	sample := Sample{Number: s.number() + 1, Time: now, Parts: map[string]Change{}}
	if !s.taken.IsZero() {
		sample.Seconds = now.Sub(s.taken).Seconds()
	}
	next := make(map[string]counters, len(parts))
	for _, p := range parts {
		was, known := s.counters[p.Name]
		if p.counted {
			c := counters{frames: p.Frames, lost: p.Lost, delays: p.delays.Count, delay: p.delays.Sum, since: now}
			sample.Parts[p.Name] = c.follow(was, known, now)
			next[p.Name] = c
		} else if known {
			next[p.Name] = was // it goes on counting from there when it is opened again
		}
	}
	s.counters, s.taken = next, now
	s.add(sample)
}

// follow takes the times over from the sample before, and returns the change since then. The counters of a part that was
// reopened are new: they are below those of the sample before.
func (c *counters) follow(was counters, known bool, now time.Time) Change {
	if !known || c.frames < was.frames || c.lost < was.lost {
		return Change{0, 0, -1}
	}
	c.since, c.lostAt = was.since, was.lostAt
	if c.lost > was.lost {
		c.lostAt = &now
	}
	change := Change{int64(c.frames - was.frames), int64(c.lost - was.lost), -1}
	if c.delays > was.delays {
		change[2] = (c.delay - was.delay).Microseconds() / int64(c.delays-was.delays)
	}
	return change
}

// addHistory completes parts by what the samples have shown.
func (s *sampler) addHistory(parts []Part) {
	s.counting.Lock()
	defer s.counting.Unlock()
	latest, _, _ := s.after(max(s.number(), rateSamples) - rateSamples)
	for i := range parts {
		p := &parts[i]
		if !p.counted {
			continue
		}
		if c, known := s.counters[p.Name]; known && p.Frames >= c.frames && p.Lost >= c.lost {
			p.Since, p.LostAt = &c.since, c.lostAt
		}
		frames, seconds := int64(0), 0.0
		for _, x := range latest {
			if change, has := x.Parts[p.Name]; has {
				frames, seconds = frames+change[0], seconds+x.Seconds
			}
		}
		if seconds > 0 {
			p.Rate = float64(frames) / seconds
		}
	}
}
