// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"slices"
	"sync"

	"github.com/tegracast/tegracast/pipeline"
)

// hands tracks the frames that a recording has taken from its queue. If the disk hangs, leave counts these frames as
// dropped, and holds them until the kernel no longer reads them.
type hands struct {
	queue *pipeline.Queue

	mu   sync.Mutex
	held []*pipeline.Frame
	left bool
}

// next takes a frame, like Queue.Next. After leave it drops the frame and returns context.Canceled.
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

// release stops tracking a frame. It reports whether the frame must still be returned to the queue.
func (h *hands) release(f *pipeline.Frame) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = slices.DeleteFunc(h.held, func(x *pipeline.Frame) bool { return x == f })
	if h.left {
		f.Release()
	}
	return !h.left
}

// done stops tracking a frame that has been written, and counts it as delivered unless leave has counted it as dropped.
func (h *hands) done(f *pipeline.Frame) {
	if h.release(f) {
		h.queue.Done(f)
	}
}

// fail stops tracking a frame that is not written, and counts it as dropped unless leave has done so.
func (h *hands) fail(f *pipeline.Frame, err error) {
	if h.release(f) {
		h.queue.Fail(f, pipeline.DropSink, err)
	}
}

// leave detaches from the queue: it counts the tracked frames as dropped, and keeps a reference to each until it is
// released.
func (h *hands) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = true
	for _, f := range h.held {
		f.Retain()
		h.queue.Fail(f, pipeline.DropSink, nil) // the caller has logged the reason
	}
}
