// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// errStalled means that a part of the graph has work to do but makes no progress.
var errStalled = errors.New("the pipeline is stalled")

// progress detects stalled parts of a graph from its statistics: every part must make progress or have nothing to do.
type progress struct {
	parts map[string]watched
}

// watched records how much work a part had done when it last made progress or had nothing to do, and when that was.
type watched struct {
	done uint64
	at   time.Time
}

// check examines the statistics st, taken at the time now. It returns an error that wraps errStalled and names every
// part that has made no progress for longer than patience: a source that is not idle, has not ended, and has been
// silent for more than two frame periods, or a stage or output for which frames are waiting. A part seen for the first
// time counts as making progress.
func (p *progress) check(st pipeline.Stats, now time.Time, patience time.Duration) error {
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
			stalled = append(stalled, fmt.Errorf("%w: %s %s has made no progress for %v", errStalled, kind, name, quiet.Round(time.Millisecond)))
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
