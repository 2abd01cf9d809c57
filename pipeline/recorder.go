// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// An Event is the kind of an event in the flight recorder.
type Event uint8

const (
	EventCaptured  Event = iota // the source emitted the frame
	EventProcessed              // a stage has made its outputs; the argument is the duration in ns
	EventDelivered              // an output or a stage has finished with the frame
	EventDrop                   // the argument is the DropReason
	EventLost                   // the source saw a gap; the argument is the number of lost frames
	EventFault                  // a source or output had a fault; argument: a camera's recoveries so far, or 0
	EventState                  // the source changed its state; the argument is the new state
)

func (e Event) String() string {
	return [...]string{"captured", "processed", "delivered", "dropped", "lost", "fault", "state"}[e]
}

type entry struct {
	at    time.Time
	where string
	event Event
	seq   uint64
	arg   uint64
}

// A Recorder is a flight recorder: it keeps the most recent frame events, to be dumped after a fault. A nil Recorder
// records nothing.
type Recorder struct {
	mu   sync.Mutex
	ring []entry
	next int
	full bool
}

// NewRecorder returns a Recorder that keeps the most recent n events. n must be at least 1.
func NewRecorder(n int) *Recorder { return &Recorder{ring: make([]entry, n)} }

// Record stores an event. It does not allocate.
func (r *Recorder) Record(where string, event Event, seq, arg uint64) {
	if r == nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	r.ring[r.next] = entry{now, where, event, seq, arg}
	if r.next++; r.next == len(r.ring) {
		r.next, r.full = 0, true
	}
	r.mu.Unlock()
}

// Dump writes the events to w, oldest first, one per line: time, place, event, sequence number, argument.
func (r *Recorder) Dump(w io.Writer) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	var events []entry
	if r.full {
		events = append(events, r.ring[r.next:]...)
	}
	events = append(events, r.ring[:r.next]...)
	r.mu.Unlock()
	for _, e := range events {
		arg := fmt.Sprint(e.arg)
		if e.event == EventDrop {
			arg = DropReason(e.arg).String()
		}
		if _, err := fmt.Fprintf(w, "%s %-16s %-9s seq=%d %s\n", e.at.Format(time.RFC3339Nano), e.where, e.event, e.seq, arg); err != nil {
			return err
		}
	}
	return nil
}
