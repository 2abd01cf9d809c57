// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// holding has the frames that have been sent and that the kernel may still read (MSG_ZEROCOPY). Each goes back to the
// queue, and its train becomes free, when the kernel has let go of it.
type holding struct {
	sender *transmitter
	queue  *pipeline.Queue
	free   chan *train

	mu    sync.Mutex
	jobs  []job
	look  *time.Timer // for when no other frame comes
	ended bool
}

const (
	lookAgain = 2 * time.Millisecond
	letGoIn   = time.Second // at the end; the socket's close does not take the memory from the kernel
)

func newHolding(x *transmitter, q *pipeline.Queue, trains []*train) *holding {
	h := &holding{sender: x, queue: q, free: make(chan *train, len(trains)), jobs: make([]job, 0, len(trains))}
	for _, t := range trains {
		h.free <- t
	}
	return h
}

// put takes a job that has been sent.
func (h *holding) put(j job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, j)
	h.settle()
}

// settle gives back what the kernel has let go of, and looks again soon when that is not all. mu is held.
func (h *holding) settle() {
	if slices.ContainsFunc(h.jobs, job.inFlight) {
		h.sender.reap()
	}
	left := h.jobs[:0]
	for _, j := range h.jobs {
		if j.inFlight() {
			left = append(left, j)
		} else {
			h.give(j)
		}
	}
	h.jobs = left
	switch {
	case len(left) == 0 || h.ended:
	case h.look == nil:
		h.look = time.AfterFunc(lookAgain, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.settle()
		})
	default:
		h.look.Reset(lookAgain)
	}
}

func (h *holding) give(j job) {
	switch {
	case errors.Is(j.train.filling.ended, pipeline.ErrDamaged):
		h.queue.Fail(j.frame, pipeline.DropDamaged, nil) // the source has told the log
	case j.train.filling.ended != nil: // the stream has ended before the frame
		h.queue.Fail(j.frame, pipeline.DropDetached, nil)
	case j.failed:
		h.queue.Fail(j.frame, pipeline.DropSink, nil) // the destinations have told the log
	default:
		h.queue.Done(j.frame)
	}
	h.free <- j.train
}

// end waits for the kernel, but not for ever.
func (h *holding) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.look != nil {
		h.look.Stop()
	}
	for until := time.Now().Add(letGoIn); len(h.jobs) > 0 && time.Now().Before(until); h.settle() {
		time.Sleep(time.Millisecond)
	}
	for _, j := range h.jobs {
		h.give(j)
	}
	h.jobs = nil
}
