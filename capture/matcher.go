// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// MatcherConfig is how edges of a line belong to frames.
type MatcherConfig struct {
	Delay     time.Duration // from an edge to the beginning of the exposure
	Tolerance time.Duration // by which that may be off, besides the uncertainty of the frame's time
	// Every says that each frame has an edge, as of a trigger: one without is counted.
	Every bool
}

// A Matcher finds the frame that belongs to each edge of a line, by the times of edges and of exposures. Edges and frames
// come in the order of their times, each from a goroutine of its own; which of the two is known first does not matter.
type Matcher struct {
	cfg MatcherConfig

	mu     sync.Mutex
	edges  []time.Time // that wait for their frame
	frames []exposed   // that wait for their edge
	stats  MatchStats
}

// exposed is a frame as far as edges are concerned.
type exposed struct {
	start       time.Time
	uncertainty time.Duration
}

// MatchStats are the books of a Matcher: edges are those matched, those alone, and those that wait.
type MatchStats struct {
	Edges       uint64
	Matched     uint64
	AloneEdges  uint64        // edges without a frame
	AloneFrames uint64        // frames without an edge, where each has one
	Offset      time.Duration // from the edge to the exposure's beginning, of the last frame that was matched
	Uncertainty time.Duration // of Offset
}

// How long one side waits for the other. An edge is known within milliseconds; a frame after its exposure, which takes up
// to 4.3 s (docs/fpga-interface.md, EXPOSURE), its readout and its transfer.
const (
	edgeIsLate  = time.Second
	frameIsLate = 10 * time.Second
	// mostWaiting bounds both lists: a thousand edges a second for a second.
	mostWaiting = 1024
)

// NewMatcher matches nothing yet.
func NewMatcher(cfg MatcherConfig) *Matcher { return &Matcher{cfg: cfg} }

// Edge takes the time of an edge. It allocates nothing once it runs.
func (m *Matcher) Edge(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Edges++
	if len(m.edges) == mostWaiting {
		m.dropEdge()
	}
	m.edges = append(m.edges, at)
	m.settle(time.Now())
}

// Frame takes the time of a frame, if that is known. It allocates nothing once it runs.
func (m *Matcher) Frame(t pipeline.Times) {
	if t.ExposureStart.IsZero() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.frames) == mostWaiting {
		m.dropFrame()
	}
	m.frames = append(m.frames, exposed{t.ExposureStart, t.Uncertainty})
	m.settle(time.Now())
}

// Stats returns the books.
func (m *Matcher) Stats() MatchStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(time.Now())
	return m.stats
}

// settle merges the two lists, which are in order: the earlier one of two that do not belong together never finds another.
func (m *Matcher) settle(now time.Time) {
	for len(m.edges) > 0 && len(m.frames) > 0 {
		f := m.frames[0]
		offset := f.start.Sub(m.edges[0])
		switch off, slack := offset-m.cfg.Delay, m.cfg.Tolerance+f.uncertainty; {
		case off > slack:
			m.dropEdge()
		case off < -slack:
			m.dropFrame()
		default:
			m.stats.Matched++
			m.stats.Offset, m.stats.Uncertainty = offset, f.uncertainty
			m.edges, m.frames = behead(m.edges), behead(m.frames)
		}
	}
	for len(m.edges) > 0 && now.Sub(m.edges[0]) > frameIsLate {
		m.dropEdge()
	}
	for len(m.frames) > 0 && now.Sub(m.frames[0].start) > edgeIsLate {
		m.dropFrame()
	}
}

func (m *Matcher) dropEdge() {
	m.stats.AloneEdges++
	m.edges = behead(m.edges)
}

func (m *Matcher) dropFrame() {
	if m.cfg.Every {
		m.stats.AloneFrames++
	}
	m.frames = behead(m.frames)
}

// behead takes off the first one and keeps the room; the lists are short while both sides come.
func behead[T any](list []T) []T { return append(list[:0], list[1:]...) }
