// SPDX-License-Identifier: Apache-2.0

package web

import (
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// A Part is a source, a stage or an output: a step on the way of the frames.
type Part struct {
	Kind   string            `json:"kind"` // source, stage or output
	Name   string            `json:"name"`
	From   string            `json:"from,omitempty"`   // the part that it reads from; empty for a source
	State  string            `json:"state"`            // running, idle, retrying, ended or stopped
	Frames uint64            `json:"frames"`           // emitted, processed or delivered
	Lost   uint64            `json:"lost"`             // by this part alone; an output's rate loses none
	Losses map[string]uint64 `json:"losses,omitempty"` // Lost by reason: missing (at a source), or a pipeline.DropReason
	P50    time.Duration     `json:"p50_ns"`           // delay of half of the frames, from the end of DMA or replay
	P99    time.Duration     `json:"p99_ns"`           // delay of 99 % of the frames
	History
	counted bool                  // it is open, and Frames and Lost are its counters
	delays  pipeline.Distribution // of stages and outputs
}

// A History holds what the samples of a part have shown.
type History struct {
	Rate   float64    `json:"rate"`              // frames per second, over the last rateSamples samples
	Since  *time.Time `json:"since,omitempty"`   // when Frames and Lost began to count
	LostAt *time.Time `json:"lost_at,omitempty"` // when Lost last grew
}

// newParts returns all parts in the order of the frames' way. list has the outputs of the configuration; outputs of the
// graph that are not among them serve the page, and are left out.
func newParts(st *pipeline.Stats, list []Output) (parts []Part) {
	for _, s := range st.Sources {
		p := Part{Kind: "source", Name: s.Name, State: "running", Frames: s.Captured, Lost: s.Lost, counted: true}
		if s.Lost > 0 {
			p.Losses = map[string]uint64{"missing": s.Lost}
		}
		switch {
		case s.Ended:
			p.State = "ended"
		case s.Idle:
			p.State = "idle"
		}
		parts = append(parts, p)
	}
	for _, s := range st.Stages {
		parts = append(parts, Part{
			Kind: "stage", Name: s.Name, From: s.From, State: "running", Frames: s.Delivered, Lost: s.Drops(), Losses: s.Dropped,
			P50: s.Latency.P50, P99: s.Latency.P99, counted: true, delays: s.Latencies,
		})
	}
	books := map[string]*pipeline.OutputStats{}
	for i := range st.Outputs {
		books[st.Outputs[i].Name] = &st.Outputs[i]
	}
	for _, o := range list {
		p := Part{Kind: "output", Name: o.Name, From: o.From, State: string(o.State)}
		if b := books[o.Name]; b != nil {
			p.counted, p.delays = true, b.Latencies
			p.Frames, p.P50, p.P99 = b.Delivered, b.Latency.P50, b.Latency.P99
			p.Lost, p.Losses = ownLosses(b)
		}
		parts = append(parts, p)
	}
	return parts
}

// ownLosses returns the frames that an output itself has lost, and their numbers by reason.
func ownLosses(o *pipeline.OutputStats) (lost uint64, losses map[string]uint64) {
	for at, n := range o.Dropped {
		place, reason, _ := strings.Cut(at, "/")
		if n == 0 || place != o.Name || reason == pipeline.DropRate.String() {
			continue
		}
		if losses == nil {
			losses = map[string]uint64{}
		}
		losses[reason] += n
		lost += n
	}
	return lost, losses
}
