// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"fmt"
	"time"
)

// ErrStalled says that a part of the graph should be working and is not.
var ErrStalled = errors.New("the pipeline is stalled")

// Progress watches the books of a graph: every part must move, or have nothing to do.
type Progress struct {
	parts map[string]watched
}

// watched is a part's work as it was when it last moved.
type watched struct {
	done uint64
	at   time.Time
}

// Check looks at the books at the given time, and returns an error that wraps ErrStalled and names every part that has not
// moved for longer than patience: a source that is not idle, has not ended, and whose frame period has passed twice, a stage or an output
// for which frames wait. The first look at a part finds it moving.
func (p *Progress) Check(st Stats, now time.Time, patience time.Duration) error {
	before := p.parts
	p.parts = map[string]watched{}
	var stalled []error
	look := func(kind, name string, done uint64, resting bool, patience time.Duration) {
		w, known := before[name]
		if !known || resting || w.done != done {
			w = watched{done, now}
		}
		p.parts[name] = w
		if quiet := now.Sub(w.at); quiet > patience {
			stalled = append(stalled, fmt.Errorf("%w: %s %s has made no progress for %v", ErrStalled, kind, name, quiet.Round(time.Millisecond)))
		}
	}
	for _, s := range st.Sources {
		look("source", s.Name, s.Captured, s.Idle || s.Ended, max(patience, 2*s.Period))
	}
	for _, s := range st.Stages {
		done := s.Delivered + s.Drops()
		look("stage", s.Name, done, s.Offered == done, patience)
	}
	for _, o := range st.Outputs {
		look("output", o.Name, o.Captured-o.Waiting, o.Waiting == 0, patience)
	}
	return errors.Join(stalled...)
}
