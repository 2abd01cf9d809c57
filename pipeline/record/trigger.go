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

// Window is the range of frames that a trigger requests: from Before before it to After after it.
type Window struct {
	Before, After time.Duration
	// Result is an additional trigger; may be nil.
	Result *Condition
}

// A Condition is a condition on the number with the name Number among the results of the stage Stage. It triggers when
// the number exceeds Above, and the recording continues as long as the number exceeds it.
type Condition struct {
	Stage, Number string
	Above         float64
}

// cause describes the condition as the cause of a trigger.
func (c *Condition) cause() string {
	return fmt.Sprintf("result: %s of %s is above %v", c.Number, c.Stage, c.Above)
}

// met reports whether a frame meets the condition.
func (c *Condition) met(f *pipeline.Frame) bool {
	for i := range f.Results {
		if r := &f.Results[i]; r.Stage == c.Stage && r.Numbers[c.Number] > c.Above {
			return true
		}
	}
	return false
}

// A Trigger requests the frames around a moment.
type Trigger struct {
	Cause string
	At    time.Time // by this machine's clock; zero: time of the newest frame
}

// Errors of Sink.Trigger.
var (
	ErrNoTrigger = errors.New("the recording has no trigger: it keeps all frames")
	ErrTriggers  = errors.New("too many triggers wait for the next frame")
	ErrEnded     = errors.New("the recording has ended")
)

// waitingTriggers is the maximum number of triggers that may wait for the next frame.
const waitingTriggers = 64

// Trigger requests the frames around a moment. It never blocks, and may be called from any goroutine. If it refuses the
// request, it returns ErrNoTrigger, ErrEnded or ErrTriggers.
func (s *Sink) Trigger(t Trigger) error {
	return t.queueTo(s.triggers, s.config.Window, s.ended.Load())
}

// queueTo has a recording's trigger wait in queue.
func (t Trigger) queueTo(queue chan<- Trigger, w *Window, ended bool) error {
	switch {
	case w == nil:
		return ErrNoTrigger
	case ended:
		return ErrEnded
	}
	select {
	case queue <- t:
		return nil
	default:
		return ErrTriggers
	}
}

// triggerSchema is the JSON Schema of a TriggerNote.
const triggerSchema = `{"title":"tegracast/Trigger","type":"object","required":["cause","at","frame","before","after"],"properties":{` +
	`"cause":{"type":"string"},` +
	`"at":{"type":"integer","description":"ns since 1970, a 64-bit integer, which a double cannot hold"},` +
	`"at_us":{"type":"integer","description":"the same in µs, which a double holds"},` +
	`"frame":{"type":"integer","description":"sequence number of the newest frame then"},` +
	`"before":{"type":"integer","description":"ns before the trigger that were asked for"},` +
	`"after":{"type":"integer","description":"ns after it"}}}`

// A TriggerNote is a trigger as stored in the file.
type TriggerNote struct {
	Cause  string `json:"cause"`  // what triggered
	At     int64  `json:"at"`     // nanoseconds since 1970, which a double cannot hold
	AtUS   int64  `json:"at_us"`  // the same in microseconds, which a double holds
	Frame  uint64 `json:"frame"`  // number of the newest frame then
	Before int64  `json:"before"` // nanoseconds requested before the trigger
	After  int64  `json:"after"`  // nanoseconds requested after the trigger
}

// News reports a trigger that was accepted, a completed file, or a file that was deleted because of the limits of its
// recording.
type News struct {
	Output  string
	Trigger *TriggerNote // nil: the news is about a file
	File    string       // path
	Deleted bool
}

// reportNews calls told, if it is set.
func (d *folder) reportNews(n News) {
	if d.told != nil {
		n.Output = d.name
		d.told(n)
	}
}

// maxCause is the maximum number of bytes of a cause that are kept.
const maxCause = 256

// note returns the note of a trigger of time at, in ns since 1970, when frame was the newest one.
func (w *Window) note(cause string, at int64, frame uint64) TriggerNote {
	return TriggerNote{
		Cause: cause[:min(len(cause), maxCause)], At: at, AtUS: at / 1000, Frame: frame, Before: int64(w.Before), After: int64(w.After),
	}
}

// note writes the trigger into the file, as a separate chunk, and reports it.
func (r *ring) note(t Trigger, at int64) error {
	n := r.run.sink.config.Window.note(t.Cause, at, r.newest)
	text, err := json.Marshal(&n)
	if err != nil {
		return fmt.Errorf("a trigger: %w", err)
	}
	m := mcap.Message{Channel: triggerChannel, Sequence: r.triggered, Log: uint64(at), Publish: uint64(at)}
	r.triggered++
	r.run.sink.reportNews(News{Trigger: &n})
	return r.run.append(at, mcap.Part{Message: m, Data: text})
}
