// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/cudahost"
)

// An Order is shared by the stages of a GPU. Their kernels take turns, never two at a time: a fault is told to everything in
// the process, and so it is known whose kernel was at work.
type Order struct {
	mu   sync.Mutex
	last *cudahost.Event // behind the kernel that was launched last; nil: none

	fault atomic.Pointer[FaultError] // set before lost is closed
	lost  chan struct{}
}

// NewOrder is that of a GPU in a process.
func NewOrder() *Order { return &Order{lost: make(chan struct{})} }

// Fault is the kernel that has cost the process its GPU, or nil.
func (o *Order) Fault() *FaultError { return o.fault.Load() }

// lose says that the GPU is lost by f, unless it was lost before. It returns what it was lost by.
func (o *Order) lose(f *FaultError) *FaultError {
	if o.fault.CompareAndSwap(nil, f) {
		close(o.lost)
	}
	return o.fault.Load()
}

// launch puts a kernel on a stream, behind all that others have launched; done is marked when it has ended.
func (o *Order) launch(s *cudahost.Stream, done *cudahost.Event, kernel func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last != nil && o.last != done {
		if err := s.After(o.last); err != nil {
			return err
		}
	}
	if err := kernel(); err != nil {
		return err
	}
	o.last = done
	return s.Mark(done)
}

// leave forgets an event, whose kernels have ended.
func (o *Order) leave(done *cudahost.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == done {
		o.last = nil
	}
}
