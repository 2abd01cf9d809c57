// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// holding keeps frames that have been sent but may still be read by the kernel (MSG_ZEROCOPY). When the kernel has
// finished with a frame, holding returns the frame to the queue as done or failed, and its train becomes free.
type holding struct {
	sender *transmitter
	queue  *pipeline.Queue
	free   chan *train

	mu    sync.Mutex
	jobs  []job
	look  *time.Timer // timer for settle, in case no other frame comes
	ended bool
}

const (
	lookAgain = 2 * time.Millisecond
	letGoIn   = time.Second // maximum wait at the end; closing the socket does not take the memory from the kernel
)

func newHolding(x *transmitter, q *pipeline.Queue, trains []*train) *holding {
	h := &holding{sender: x, queue: q, free: make(chan *train, len(trains)), jobs: make([]job, 0, len(trains))}
	for _, t := range trains {
		h.free <- t
	}
	return h
}

// addSent adds a job that has been sent.
func (h *holding) addSent(j job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, j)
	h.settle()
}

// settle returns the frames that the kernel has finished with, and schedules another look if some remain. The caller
// must hold mu.
func (h *holding) settle() {
	if slices.ContainsFunc(h.jobs, job.inFlight) {
		h.sender.reap()
	}
	left := h.jobs[:0]
	for _, j := range h.jobs {
		if j.inFlight() {
			left = append(left, j)
		} else {
			h.returnFrame(j)
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

func (h *holding) returnFrame(j job) {
	switch {
	case errors.Is(j.train.filling.ended, pipeline.ErrDamaged):
		h.queue.Fail(j.frame, pipeline.DropDamaged, nil) // the source has already logged the reason
	case j.train.filling.ended != nil: // the stream ended before the frame
		h.queue.Fail(j.frame, pipeline.DropDetached, nil)
	case j.failed:
		h.queue.Fail(j.frame, pipeline.DropSink, nil) // the destinations have already logged the reason
	default:
		h.queue.Done(j.frame)
	}
	h.free <- j.train
}

// drain waits until the kernel has finished with all frames, but at most for letGoIn, and returns all of them to the
// queue.
func (h *holding) drain() {
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
		h.returnFrame(j)
	}
	h.jobs = nil
}
