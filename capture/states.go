// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// A State is the current activity of a supervised source.
type State int

const (
	Starting   State = iota // engine and camera are being started
	Streaming               // frames are coming
	Idle                    // no frames are expected: the camera waits for a trigger, or outputs hold all slots
	Restarting              // the engine is being stopped and started again
	Reopening               // everything is closed and opened again, after a pause
	Resetting               // as Reopening, and the function was reset or the FPGA's reset line was pulsed
	Ended                   // stopped, or given up
	numStates
)

func (s State) String() string {
	return [...]string{"starting", "streaming", "idle", "restarting", "reopening", "resetting", "ended"}[s]
}

// states reports the states of a supervised source to its log, to the flight recorder and to its counters.
type states struct {
	name     string
	recorder *pipeline.Recorder
	log      *slog.Logger
	last     atomic.Uint64 // sequence number of the latest emitted frame

	counters [numStates]atomic.Uint64 // transitions into each state
	current  atomic.Int32             // the state, for other goroutines
	state    State
	told     State // the latest state logged at a level above debug
	faults   pipeline.FaultLog
}

// count adds the transitions into each state to counters.
func (s *states) count(counters map[string]uint64) {
	for state := range numStates {
		if n := s.counters[state].Load(); n > 0 {
			counters[state.String()] = n
		}
	}
}

// to changes the state, and reports the transition to the log, the flight recorder and the counters.
func (s *states) to(state State, why error) {
	changed := s.state != state
	if !changed && why == nil {
		s.logState(state, changed)
		return
	}
	s.state = state
	s.counters[state].Add(1)
	s.current.Store(int32(state))
	s.recorder.Record(s.name, pipeline.EventState, s.last.Load(), uint64(state))
	if why == nil {
		s.logState(state, changed)
		return
	}
	level := slog.LevelDebug
	about := []any{"source", s.name, "after frame", s.last.Load(), "fault", why}
	if left, due := s.faults.Due(state.String(), time.Now()); due {
		level, s.told = slog.LevelWarn, state
		about = pipeline.Unlogged(about, left)
	}
	s.log.Log(context.Background(), level, "source "+state.String(), about...)
}

// logState logs a state that was not entered because of a fault: at level info if faults no longer recur and the state
// is not the last one logged above debug. Otherwise it logs the state at level debug, and only if changed is true.
func (s *states) logState(state State, changed bool) {
	level := slog.LevelDebug
	if s.told != state && s.faults.Calm(time.Now()) {
		level, s.told = slog.LevelInfo, state
	} else if !changed {
		return
	}
	s.log.Log(context.Background(), level, "source "+state.String(), "source", s.name)
}

// outcomeOf grades an attempt by its number of good frames.
func outcomeOf(frames uint64) pipeline.Outcome {
	switch {
	case frames == 0:
		return pipeline.Fruitless
	case frames < settledFrames:
		return pipeline.Fleeting
	}
	return pipeline.Settled
}

// silence measures how long no frame has come, not counting the time during which this process itself was held up,
// because then it could take no frame, and a model of the FPGA would produce none.
type silence struct {
	interval    time.Duration // between looks
	since, last time.Time     // start of the silence; time of the latest look
	late        time.Duration // total lateness of looks since the start of the silence
}

func newSilence(interval time.Duration) silence {
	now := time.Now()
	return silence{interval: interval, since: now, last: now}
}

// length is called at each look, and returns the length of the silence so far.
func (q *silence) length(now time.Time) time.Duration {
	if late := now.Sub(q.last) - q.interval; late > q.interval/4 {
		q.late += late
	}
	q.last = now
	return now.Sub(q.since) - q.late
}

// end ends the silence; the next one begins at the time of the latest look.
func (q *silence) end() { q.since, q.late = q.last, 0 }
