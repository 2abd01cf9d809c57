// SPDX-License-Identifier: Apache-2.0

package pipeline

import "time"

// Stats is a snapshot of the graph's books.
type Stats struct {
	Sources []SourceStats `json:"sources"`
	Stages  []StageStats  `json:"stages"`
	Outputs []OutputStats `json:"outputs"`
}

// SourceStats are the books of a source. Captured + Lost is what the sensor has counted since the first frame.
type SourceStats struct {
	Name     string            `json:"name"`
	Captured uint64            `json:"captured"`
	Lost     uint64            `json:"lost"`             // gaps in the sequence
	Idle     bool              `json:"idle,omitempty"`   // it has nothing to emit, and that is no fault
	Ended    bool              `json:"ended,omitempty"`  // it was played to its end
	Period   time.Duration     `json:"period_ns"`        // from frame to frame; 0: not fixed
	Report   map[string]uint64 `json:"report,omitempty"` // SourceStatus.Counters
}

// StageStats are the books of a stage. Latency goes from DMA done to the moment at which all of the stage's outputs are
// ready, on the device, too; Work is the call of the stage alone, which for a stage on a device is the enqueuing.
type StageStats struct {
	Counts
	Work      Percentiles  `json:"work"`
	WorkTimes Distribution `json:"-"` // the same, for those who add up
	Latencies Distribution `json:"-"` // as Latency
}

// OutputStats are the books of an output. Once it has ended,
// Captured = Delivered + the sum of Dropped, exactly.
type OutputStats struct {
	Name      string            `json:"name"`
	From      string            `json:"from"`
	Captured  uint64            `json:"captured"` // frames since it was attached, and those of OutputConfig.Books
	Delivered uint64            `json:"delivered"`
	Dropped   map[string]uint64 `json:"dropped,omitempty"` // by "place/reason"
	Waiting   uint64            `json:"waiting"`           // in the queue or in the sink's hands
	Latency   Percentiles       `json:"latency"`           // DMA done to the sink's end with the frame
	Latencies Distribution      `json:"-"`                 // the same, for those who add up
	Faults    uint64            `json:"faults"`            // how often it failed
	OutputStatus
}

// Drops is the sum of all drops but those that the output asked for by its rate.
func (s OutputStats) Drops() uint64 {
	var n uint64
	for k, v := range s.Dropped {
		if k != s.Name+"/"+DropRate.String() {
			n += v
		}
	}
	return n
}

// Stats reads the books.
func (g *Graph) Stats() Stats {
	g.listed.Lock()
	defer g.listed.Unlock()
	var st Stats
	for _, s := range g.sources {
		now := s.source.Status()
		st.Sources = append(st.Sources, SourceStats{
			Name: s.name, Captured: s.captured.Load(), Lost: s.lost.Load(), Idle: now.Idle, Ended: s.ended.Load(),
			Period: s.out.format.Rate.Period(), Report: now.Counters,
		})
	}
	for _, n := range g.stages {
		st.Stages = append(st.Stages, StageStats{n.consumer.account.Counts(), n.worked.Percentiles(), n.worked.Distribution(), n.consumer.account.latency.Distribution()})
	}
	for _, o := range g.outputs {
		st.Outputs = append(st.Outputs, o.Stats())
	}
	return st
}

// Stats reads the output's books.
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
		// A frame that a stage on the way dropped never reached the output: it is lost to it all the same.
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
