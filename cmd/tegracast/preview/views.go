// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"sync"
	"time"
)

// idleTime is the time for which pictures are still made after the last viewer has left.
const idleTime = 2 * time.Second

// Views are the outputs with viewers. The zero value is ready for use.
type Views struct {
	mu   sync.Mutex
	open map[string]*view // by output
}

// Source provides the pictures of an output.
type Source struct {
	Sink *Sink
	Of   any    // the owner of the output, for Views.StopPictures
	Stop func() // ends the sink; called once
}

// view is an output that has viewers, or had until recently.
type view struct {
	Source
	watchers int
	idle     *time.Timer
}

// A Watcher is a viewer of an output.
type Watcher struct {
	sink  *Sink
	once  sync.Once
	leave func()
}

// Next waits for a picture other than old, which may be nil. It returns ErrEnded when no more come, or ctx's error.
func (w *Watcher) Next(ctx context.Context, old *Picture) (*Picture, error) {
	return w.sink.Next(ctx, old)
}

// Close removes the viewer. It may be called twice.
func (w *Watcher) Close() { w.once.Do(w.leave) }

// AddViewer adds a viewer to an output, and calls open if the output has no pictures yet. The viewer must be closed.
func (v *Views) AddViewer(output string, open func() (Source, error)) (*Watcher, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x := v.open[output]
	if x == nil {
		source, err := open()
		if err != nil {
			return nil, err
		}
		if v.open == nil {
			v.open = map[string]*view{}
		}
		x = &view{Source: source}
		v.open[output] = x
	}
	x.watchers++
	if x.idle != nil {
		x.idle.Stop()
	}
	return &Watcher{sink: x.Sink, leave: func() { v.leave(output, x) }}, nil
}

// leave removes a viewer of x. It stops the pictures idleTime after the last viewer was removed, unless another one has
// come.
func (v *Views) leave(output string, x *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x.watchers--; x.watchers > 0 || v.open[output] != x {
		return
	}
	x.idle = time.AfterFunc(idleTime, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if x.watchers == 0 && v.open[output] == x {
			delete(v.open, output)
			x.Stop()
		}
	})
}

// StopPictures stops the pictures of the outputs whose Source.Of equals of. If only is not empty, it stops those of the
// output called only, if that is one of them.
func (v *Views) StopPictures(of any, only string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for output, x := range v.open {
		if x.Of == of && (only == "" || only == output) {
			delete(v.open, output)
			x.Stop()
		}
	}
}
