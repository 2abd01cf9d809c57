// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// TestMatcher checks that each edge finds its frame, whichever becomes known first, and that edges and frames without a
// counterpart are counted once.
func TestMatcher(t *testing.T) {
	const period, delay = 20 * time.Millisecond, 300 * time.Microsecond
	for name, frameFirst := range map[string]bool{"edge first": false, "frame first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMatcher(MatcherConfig{Delay: delay, Tolerance: time.Millisecond, Every: true})
				rng := rand.New(rand.NewPCG(1, 2))
				begin, lostEdges, lostFrames := time.Now(), uint64(0), uint64(0)
				for i := range 1000 {
					at := begin.Add(time.Duration(i) * period)
					edge := func() { m.Edge(at) }
					frame := func() {
						off := time.Duration(rng.IntN(1800)-900) * time.Microsecond
						m.Frame(pipeline.Times{ExposureStart: at.Add(delay + off), Uncertainty: 50 * time.Microsecond})
					}
					if i%100 == 7 {
						edge, lostEdges = func() {}, lostEdges+1
					}
					if i%100 == 50 {
						frame, lostFrames = func() {}, lostFrames+1
					}
					if i%100 == 90 { // a bouncing line has an additional edge
						m.Edge(at.Add(-5 * time.Millisecond))
						lostFrames++
					}
					if frameFirst {
						frame()
						edge()
					} else {
						edge()
						frame()
					}
					time.Sleep(period)
				}
				time.Sleep(2 * frameIsLate)
				s := m.Stats()
				if s.AloneFrames != lostEdges || s.AloneEdges != lostFrames || s.Matched != 1000-lostEdges-10 || s.Edges != s.Matched+s.AloneEdges {
					t.Errorf("%+v, want %d frames and %d edges alone", s, lostEdges, lostFrames)
				}
				if s.Offset < delay-time.Millisecond || s.Offset > delay+time.Millisecond || s.Uncertainty != 50*time.Microsecond {
					t.Errorf("offset %v to %v", s.Offset, s.Uncertainty)
				}
			})
		})
	}
}

// TestMatcherOnOneSide checks that without edges, or without frames, waiting entries are given up, and that their
// number is bounded.
func TestMatcherOnOneSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMatcher(MatcherConfig{Tolerance: time.Millisecond, Every: true})
		for range 3 * mostWaiting {
			m.Edge(time.Now())
			time.Sleep(100 * time.Microsecond)
		}
		if n := len(m.edges); n != mostWaiting {
			t.Errorf("%d edges wait", n)
		}
		time.Sleep(frameIsLate + time.Second)
		m.Frame(pipeline.Times{}) // its time is unknown
		for range 30 {
			m.Frame(pipeline.Times{ExposureStart: time.Now()})
		}
		time.Sleep(edgeIsLate + time.Millisecond)
		if s := m.Stats(); s.Edges != 3*mostWaiting || s.AloneEdges != s.Edges || s.AloneFrames != 30 || s.Matched != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestPulsePerSecondFindsTheNearestFrame checks that a pulse is matched to the nearest of many frames, and that the
// others do not count as unmatched.
func TestPulsePerSecondFindsTheNearestFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, phase = 33366667 * time.Nanosecond, 7 * time.Millisecond
		m := NewMatcher(MatcherConfig{Tolerance: period / 2})
		begin := time.Now()
		for i := range 300 {
			at := begin.Add(time.Duration(i) * period)
			if i%30 == 15 { // about once per second
				m.Edge(at.Add(-phase))
			}
			time.Sleep(period) // the frame becomes known later
			m.Frame(pipeline.Times{ExposureStart: at})
		}
		if s := m.Stats(); s.Matched != 10 || s.AloneEdges != 0 || s.AloneFrames != 0 || s.Offset != phase {
			t.Errorf("%+v", s)
		}
	})
}

func TestMatcherAllocatesNothing(t *testing.T) {
	m := NewMatcher(MatcherConfig{Tolerance: time.Millisecond})
	m.Edge(time.Now())
	if n := testing.AllocsPerRun(1000, func() {
		now := time.Now()
		m.Frame(pipeline.Times{ExposureStart: now})
		m.Edge(now)
	}); n != 0 {
		t.Errorf("%v allocations for a frame and an edge", n)
	}
}
