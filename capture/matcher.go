// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// MatcherConfig configures how edges of a GPIO line are matched to frames.
type MatcherConfig struct {
	Delay     time.Duration // from an edge to the start of the exposure
	Tolerance time.Duration // permitted deviation from Delay, in addition to the uncertainty of the frame's time
	// Every is true if each frame should have an edge, such as that of a trigger. Frames without an edge are then
	// counted.
	Every bool
}

// A Matcher finds the frame that belongs to each edge of a line, by comparing the times of edges and exposures. Edges
// and frames must each be added in the order of their times, by one goroutine each. It does not matter whether the edge
// or the frame becomes known first.
type Matcher struct {
	cfg MatcherConfig

	mu     sync.Mutex
	edges  []time.Time // waiting for their frame
	frames []exposed   // waiting for their edge
	stats  MatchStats
}

// exposed holds the parts of a frame that matter for matching.
type exposed struct {
	start       time.Time
	uncertainty time.Duration
}

// MatchStats are the statistics of a Matcher. Edges is the sum of matched edges, edges without a frame, and waiting
// edges.
type MatchStats struct {
	Edges       uint64
	Matched     uint64
	AloneEdges  uint64        // edges without a frame
	AloneFrames uint64        // frames without an edge, if each should have one
	Offset      time.Duration // from the edge to the start of the exposure, for the latest matched frame
	Uncertainty time.Duration // of Offset
}

// edgeIsLate is the time for which a frame waits for its edge, from the start of its exposure, and frameIsLate that for
// which an edge waits for its frame. An edge becomes known within milliseconds; a frame becomes known after its
// exposure, which takes up to 4.3 s (docs/fpga-interface.md, EXPOSURE), its readout and its transfer.
const (
	edgeIsLate  = time.Second
	frameIsLate = 10 * time.Second
	// mostWaiting bounds both lists, to one second at a thousand edges per second.
	mostWaiting = 1024
)

// NewMatcher returns an empty Matcher.
func NewMatcher(cfg MatcherConfig) *Matcher { return &Matcher{cfg: cfg} }

// Edge adds the time of an edge. After the lists have grown it allocates nothing.
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

// Frame adds the times of a frame, if the start of its exposure is known. Once the lists have their full size, it
// allocates nothing.
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

// Stats returns the current statistics.
func (m *Matcher) Stats() MatchStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(time.Now())
	return m.stats
}

// settle matches the two lists, which are sorted, from their beginnings: if the first edge and the first frame do not
// match, the earlier of the two has no counterpart. It also drops edges and frames that have waited too long.
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

// behead removes the first element and keeps the capacity. The lists are short as long as both edges and frames arrive.
func behead[T any](list []T) []T { return append(list[:0], list[1:]...) }
