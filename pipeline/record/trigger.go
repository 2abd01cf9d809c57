// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// Window is what a trigger asks for: the frames from Before in front of it to After behind it.
type Window struct {
	Before, After time.Duration
	// Result triggers, too; nil: none does.
	Result *Condition
}

// A Condition is a number that a stage finds in a frame. It triggers when it gets above a limit, and the recording goes on while it
// is.
type Condition struct {
	Stage, Number string
	Above         float64
}

// met says whether a frame meets the condition.
func (c *Condition) met(f *pipeline.Frame) bool {
	for i := range f.Results {
		if r := &f.Results[i]; r.Stage == c.Stage && r.Numbers[c.Number] > c.Above {
			return true
		}
	}
	return false
}

// A Trigger asks for the frames around a moment.
type Trigger struct {
	Cause string
	At    time.Time // by the clock of the frames' times; zero: that of the newest frame
}

// Errors of Sink.Trigger.
var (
	ErrNoTrigger = errors.New("the recording has no trigger: it keeps all frames")
	ErrTriggers  = errors.New("too many triggers wait for the next frame")
	ErrEnded     = errors.New("the recording has ended")
)

// waitingTriggers is how many triggers may wait for the next frame.
const waitingTriggers = 64

// Trigger asks for the frames around a moment. It never waits, and may be called from any goroutine. Errors are those above.
func (s *Sink) Trigger(t Trigger) error {
	switch {
	case s.config.Window == nil:
		return ErrNoTrigger
	case s.ended.Load():
		return ErrEnded
	}
	select {
	case s.triggers <- t:
		return nil
	default:
		return ErrTriggers
	}
}

// triggerSchema describes a TriggerNote (JSON Schema).
const triggerSchema = `{"title":"tegracast/Trigger","type":"object","required":["cause","at","frame","before","after"],"properties":{` +
	`"cause":{"type":"string"},` +
	`"at":{"type":"integer","description":"ns since 1970"},` +
	`"frame":{"type":"integer","description":"sequence number of the newest frame then"},` +
	`"before":{"type":"integer","description":"ns before the trigger that were asked for"},` +
	`"after":{"type":"integer","description":"ns behind it"}}}`

// A TriggerNote is a trigger, as it is in the file.
type TriggerNote struct {
	Cause  string `json:"cause"`
	At     int64  `json:"at"`
	Frame  uint64 `json:"frame"`
	Before int64  `json:"before"`
	After  int64  `json:"after"`
}

// News is a trigger that was taken, or a file that is whole.
type News struct {
	Output  string
	Trigger *TriggerNote // nil: a file is whole
	File    string
}

// tell tells whoever listens.
func (s *Sink) tell(n News) {
	if s.config.Told != nil {
		n.Output = s.config.Name
		s.config.Told(n)
	}
}

// maxCause is how many bytes of a cause are kept.
const maxCause = 256

// note writes the trigger into the file, as a chunk of its own.
func (r *ring) note(t Trigger, at int64) error {
	n := TriggerNote{Cause: t.Cause[:min(len(t.Cause), maxCause)], At: at, Frame: r.newest, Before: r.before, After: r.after}
	text, err := json.Marshal(&n)
	if err != nil {
		return fmt.Errorf("a trigger: %w", err)
	}
	m := mcap.Message{Channel: triggerChannel, Sequence: r.triggered, Log: uint64(at), Publish: uint64(at)}
	r.triggered++
	r.run.sink.tell(News{Trigger: &n})
	return r.run.append(at, mcap.Part{Message: m, Data: text})
}
