// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"slices"
	"sync"

	"github.com/tegracast/tegracast/pipeline"
)

// hands have the frames that a recording has taken from its queue. When its disk hangs it lets go of the queue, whose books count these
// frames as dropped; the frames stay until the kernel reads them no more.
type hands struct {
	queue *pipeline.Queue

	mu   sync.Mutex
	held []*pipeline.Frame
	left bool
}

// next takes a frame, as Queue.Next does.
func (h *hands) next(ctx context.Context) (*pipeline.Frame, error) {
	f, err := h.queue.Next(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		h.queue.Fail(f, pipeline.DropDetached, nil)
		return nil, context.Canceled
	}
	h.held = append(h.held, f)
	return f, nil
}

// give lets go of a frame. It reports whether the queue's books are still to be told.
func (h *hands) give(f *pipeline.Frame) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = slices.DeleteFunc(h.held, func(x *pipeline.Frame) bool { return x == f })
	if h.left {
		f.Release()
	}
	return !h.left
}

// done says that a frame is written.
func (h *hands) done(f *pipeline.Frame) {
	if h.give(f) {
		h.queue.Done(f)
	}
}

// fail says that a frame is not written.
func (h *hands) fail(f *pipeline.Frame, err error) {
	if h.give(f) {
		h.queue.Fail(f, pipeline.DropSink, err)
	}
}

// leave lets go of the queue.
func (h *hands) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = true
	for _, f := range h.held {
		f.Retain()
		h.queue.Fail(f, pipeline.DropSink, nil) // whoever has left tells the log
	}
}
