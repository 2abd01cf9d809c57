// SPDX-License-Identifier: Apache-2.0

package pipeline

import "time"

// Stats is a snapshot of the graph's statistics.
type Stats struct {
	Sources []SourceStats `json:"sources"`
	Stages  []StageStats  `json:"stages"`
	Outputs []OutputStats `json:"outputs"`
}

// SourceStats are the statistics of a source. Captured + Lost is the number of frames that the sensor has counted from
// the first emitted one on.
type SourceStats struct {
	Name     string            `json:"name"`
	Captured uint64            `json:"captured"`
	Lost     uint64            `json:"lost"`             // frames missing in the sequence
	Idle     bool              `json:"idle,omitempty"`   // nothing to emit, without a fault
	Ended    bool              `json:"ended,omitempty"`  // it was played to its end
	Period   time.Duration     `json:"period_ns"`        // from one frame to the next; 0 if not fixed
	How      string            `json:"how,omitempty"`    // how frames come into memory, if there is more than one way
	Report   map[string]uint64 `json:"report,omitempty"` // SourceStatus.Counters
}

// StageStats are the statistics of a stage. Latency runs from the end of DMA or replay until all of the stage's outputs
// are ready, also on the device. Work is the duration of the call to the stage alone, which for a stage on a device
// only enqueues work.
type StageStats struct {
	Counts
	From      string       `json:"from"` // the source or stage that it reads from
	Work      Percentiles  `json:"work"`
	WorkTimes Distribution `json:"-"` // Work, in a form that can be summed
	Latencies Distribution `json:"-"` // Latency, in a form that can be summed
}

// OutputStats are the statistics of an output. After the output has ended, Captured equals Delivered plus the sum of
// Dropped, exactly.
type OutputStats struct {
	Name      string            `json:"name"`
	From      string            `json:"from"`
	Captured  uint64            `json:"captured"` // frames since it was attached, plus those of OutputConfig.Books
	Delivered uint64            `json:"delivered"`
	Dropped   map[string]uint64 `json:"dropped,omitempty"` // by "place/reason"
	Waiting   uint64            `json:"waiting"`           // frames in the queue, or in use by the sink
	Latency   Percentiles       `json:"latency"`           // from the end of DMA or replay until the sink has finished with the frame
	Latencies Distribution      `json:"-"`                 // Latency, in a form that can be summed
	Faults    uint64            `json:"faults"`            // number of failures
	OutputStatus
}

// Drops returns the sum of all drops, except those that the output requested by its rate.
func (s OutputStats) Drops() uint64 {
	var n uint64
	for k, v := range s.Dropped {
		if k != s.Name+"/"+DropRate.String() {
			n += v
		}
	}
	return n
}

// Stats returns the current statistics of the graph.
func (g *Graph) Stats() Stats {
	g.listed.Lock()
	defer g.listed.Unlock()
	var st Stats
	for _, s := range g.sources {
		now := s.source.Status()
		st.Sources = append(st.Sources, SourceStats{
			Name: s.name, Captured: s.captured.Load(), Lost: s.lost.Load(), Idle: now.Idle, Ended: s.ended.Load(),
			Period: s.out.format.Rate.Period(), How: now.How, Report: now.Counters,
		})
	}
	for _, n := range g.stages {
		st.Stages = append(st.Stages, StageStats{
			Counts: n.consumer.account.Counts(), From: n.from.node, Work: n.worked.Percentiles(),
			WorkTimes: n.worked.Distribution(), Latencies: n.consumer.account.latency.Distribution(),
		})
	}
	for _, o := range g.outputs {
		st.Outputs = append(st.Outputs, o.Stats())
	}
	return st
}

// Stats returns the current statistics of the output.
func (o *Output) Stats() OutputStats {
	c := o.consumer.account.Counts()
	s := OutputStats{Name: o.cfg.Name, From: o.point.node, Captured: c.Offered, Delivered: c.Delivered, Latency: c.Latency}
	s.Latencies = o.consumer.account.latency.Distribution()
	s.Dropped = map[string]uint64{}
	for why, n := range c.Dropped {
		s.Dropped[c.Name+"/"+why] = n
	}
	s.Waiting = c.Offered - c.Delivered - c.Drops()
	for i, stage := 0, o.stage; stage != nil; i, stage = i+1, stage.up {
		// A frame dropped by an earlier stage never reached the output, but counts as lost to it.
		up := stage.consumer.account.Counts()
		for why, n := range up.Dropped {
			if n -= o.base[i].Dropped[why]; n > 0 {
				s.Dropped[up.Name+"/"+why] = n
				s.Captured += n
			}
		}
	}
	for at, n := range o.lost {
		s.Dropped[at] += n
		s.Captured += n
	}
	s.Faults, s.OutputStatus = o.faults.Load(), o.Status()
	return s
}
