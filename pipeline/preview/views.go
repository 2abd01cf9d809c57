// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"sync"
	"time"
)

// idleTime is how long pictures are still made when nobody looks any more.
const idleTime = 2 * time.Second

// Views are the outputs that somebody looks at now. The zero value is ready for use.
type Views struct {
	mu   sync.Mutex
	open map[string]*view // by output
}

// Source is where the pictures of an output come from.
type Source struct {
	Sink *Sink
	Of   any    // what the output belongs to, for Views.End
	Stop func() // ends the sink; called once
}

// view is an output that somebody looks at, or has just looked at.
type view struct {
	Source
	watchers int
	idle     *time.Timer
}

// A Watcher looks at an output.
type Watcher struct {
	sink  *Sink
	once  sync.Once
	leave func()
}

// Next waits for a picture that is not old, which may be nil. It returns ErrEnded when none comes any more.
func (w *Watcher) Next(ctx context.Context, old *Picture) (*Picture, error) {
	return w.sink.Next(ctx, old)
}

// Close ends the look. It may be called twice.
func (w *Watcher) Close() { w.once.Do(w.leave) }

// Look joins those who look at an output, or opens its pictures.
func (v *Views) Look(output string, open func() (Source, error)) (*Watcher, error) {
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

// leave stops the pictures some time after the last one has left.
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

// End stops the pictures of all outputs of something, or only those of one of them.
func (v *Views) End(of any, only string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for output, x := range v.open {
		if x.Of == of && (only == "" || only == output) {
			delete(v.open, output)
			x.Stop()
		}
	}
}
