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
	stats func() pipeline.Stats
	list  func() []Output
	now   func() time.Time

	mu      sync.Mutex
	samples []Sample
	last    map[string]counters // of each part, at the latest sample
	taken   time.Time           // time of the latest sample
	more    chan struct{}       // closed by the next sample

	sharing  sync.Mutex
	shared   json.RawMessage // Config.sharedStatus
	sharedAt uint64          // number of the sample for which shared was taken
}

// counters are those of a part, with the times that History reports.
type counters struct {
	frames, lost, delays uint64
	delay                time.Duration // sum
	since                time.Time
	lostAt               *time.Time
}

func newSampler(stats func() pipeline.Stats, list func() []Output) *sampler {
	return &sampler{stats: stats, list: list, now: time.Now, more: make(chan struct{})}
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
	delays := delaysOf(&st)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	sample := Sample{Number: 1, Time: now, Parts: map[string]Change{}}
	if n := len(s.samples); n > 0 {
		sample.Number, sample.Seconds = s.samples[n-1].Number+1, now.Sub(s.taken).Seconds()
	}
	next := make(map[string]counters, len(parts))
	for _, p := range parts {
		if was, known := s.last[p.Name]; !p.counted {
			if known {
				next[p.Name] = was // it goes on counting from there when it is opened again
			}
			continue
		}
		c := counters{frames: p.Frames, lost: p.Lost, delays: delays[p.Name].Count, delay: delays[p.Name].Sum}
		sample.Parts[p.Name] = c.follow(s.last, p.Name, now)
		next[p.Name] = c
	}
	if len(s.samples) == keptSamples {
		s.samples = append(s.samples[:0], s.samples[1:]...)
	}
	s.samples, s.last, s.taken = append(s.samples, sample), next, now
	close(s.more)
	s.more = make(chan struct{})
}

// follow sets the times of c, and returns the change since the sample before. A part whose counters have fallen was
// opened anew, and counts from now on.
func (c *counters) follow(last map[string]counters, name string, now time.Time) Change {
	was, known := last[name]
	if !known || c.frames < was.frames || c.lost < was.lost {
		c.since = now
		return Change{0, 0, -1}
	}
	c.since, c.lostAt = was.since, was.lostAt
	if c.lost > was.lost {
		c.lostAt = &now
	}
	change := Change{int64(c.frames - was.frames), int64(c.lost - was.lost), -1}
	if n := c.delays - was.delays; c.delays > was.delays {
		change[2] = (c.delay - was.delay).Microseconds() / int64(n)
	}
	return change
}

// delaysOf returns the latencies of stages and outputs by name.
func delaysOf(st *pipeline.Stats) map[string]pipeline.Distribution {
	delays := map[string]pipeline.Distribution{}
	for _, s := range st.Stages {
		delays[s.Name] = s.Latencies
	}
	for _, o := range st.Outputs {
		delays[o.Name] = o.Latencies
	}
	return delays
}

// addHistory completes parts by what the samples have shown.
func (s *sampler) addHistory(parts []Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range parts {
		p := &parts[i]
		if c, known := s.last[p.Name]; known && p.counted && p.Frames >= c.frames && p.Lost >= c.lost {
			p.Since, p.LostAt = &c.since, c.lostAt
		}
		frames, seconds := int64(0), 0.0
		for _, x := range s.samples[max(0, len(s.samples)-rateSamples):] {
			if change, has := x.Parts[p.Name]; has {
				frames, seconds = frames+change[0], seconds+x.Seconds
			}
		}
		if seconds > 0 {
			p.Rate = float64(frames) / seconds
		}
	}
}

// after returns the samples after number n, and a channel that the next sample closes. An n above the number of the
// latest sample counts as 0.
func (s *sampler) after(n uint64) (list []Sample, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) == 0 {
		return nil, s.more
	}
	latest := s.samples[len(s.samples)-1].Number
	if n > latest { // from an earlier process
		n = 0
	}
	kept := min(latest-n, uint64(len(s.samples)))
	return append(list, s.samples[uint64(len(s.samples))-kept:]...), s.more
}
