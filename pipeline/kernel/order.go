// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/cudahost"
)

// An Order is shared by the stages of a GPU. Their kernels take turns and never run concurrently: since the whole
// process is notified of a fault, this shows whose kernel was running.
type Order struct {
	mu   sync.Mutex
	last *cudahost.Event // marks the end of the latest launched kernel; may be nil

	fault atomic.Pointer[FaultError] // set before lost is closed
	lost  chan struct{}
}

// NewOrder returns a new Order. A process must have only one for each GPU.
func NewOrder() *Order { return &Order{lost: make(chan struct{})} }

// Fault returns the fault by which the process has lost its GPU, or nil.
func (o *Order) Fault() *FaultError { return o.fault.Load() }

// lose records that the GPU was lost by f, unless it was lost before. It returns the first fault.
func (o *Order) lose(f *FaultError) *FaultError {
	if o.fault.CompareAndSwap(nil, f) {
		close(o.lost)
	}
	return o.fault.Load()
}

// launch launches a kernel on a stream after all kernels launched by others. done is marked when it has ended.
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

// leave forgets an event whose kernels have ended.
func (o *Order) leave(done *cudahost.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == done {
		o.last = nil
	}
}
