// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"context"
	"errors"
	"sync"
	"unsafe"
)

// A Stream is a queue of work for the GPU, which is carried out in order.
type Stream struct {
	device  *Device
	handle  uintptr
	waiting chan *Fence
	waiter  sync.WaitGroup
	once    sync.Once
	closed  error

	mu   sync.Mutex
	free []uintptr // events that fences no longer need

	copying   sync.Mutex
	rectangle copy2D // the copy being enqueued; CUDA has read it when the call returns
}

const (
	streamNonBlocking = 1 // does not wait for the default stream
	eventBlockingSync = 1 // waiting threads sleep
	eventNoTiming     = 2
)

// maxFences is the number of fences that can wait on one stream behind the oldest before FenceThen blocks.
const maxFences = 256

// NewStream creates a stream. Close frees it.
func (g *Device) NewStream() (*Stream, error) {
	s := &Stream{device: g, waiting: make(chan *Fence, maxFences)}
	if err := g.withContext(func(d *driver) error {
		return d.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking)
	}); err != nil {
		return nil, err
	}
	s.waiter.Go(s.wait)
	return s, nil
}

// Close waits for the stream's work and frees it.
func (s *Stream) Close() error {
	s.once.Do(func() {
		close(s.waiting)
		s.waiter.Wait()
		s.closed = s.device.withContext(func(d *driver) error {
			err := d.quick(cuStreamSynchronize, s.handle)
			for _, e := range s.free {
				err = errors.Join(err, d.call(cuEventDestroy, e))
			}
			return errors.Join(err, d.call(cuStreamDestroy, s.handle))
		})
	})
	return s.closed
}

// Synchronize waits until the stream's work is done.
func (s *Stream) Synchronize() error {
	return s.device.withContext(func(d *driver) error { return d.quick(cuStreamSynchronize, s.handle) })
}

// A Fence reports when the work before it on a stream is done. It implements pipeline.Fence.
type Fence struct {
	event uintptr
	then  func(error) // may be nil
	done  chan struct{}
	err   error // read after done
}

// Fence returns a fence at the current end of the stream's work. Nobody needs to wait for it: the stream frees it.
func (s *Stream) Fence() (*Fence, error) { return s.FenceThen(nil) }

// FenceThen is Fence, but when the work is done, then is called with the error of the work, and Wait returns only after
// that. then must not wait for the stream. It is not called if FenceThen returns an error.
func (s *Stream) FenceThen(then func(error)) (*Fence, error) {
	f := &Fence{then: then, done: make(chan struct{})}
	if err := s.device.withContext(func(d *driver) error {
		if err := s.event(d, f); err != nil {
			return err
		}
		return d.quick(cuEventRecord, f.event, s.handle)
	}); err != nil {
		return nil, err
	}
	s.waiting <- f
	return f, nil
}

// event sets the fence's event to a free or a new one.
func (s *Stream) event(d *driver, f *Fence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		f.event, s.free = s.free[n-1], s.free[:n-1]
		return nil
	}
	return d.call(cuEventCreate, uintptr(unsafe.Pointer(&f.event)), eventBlockingSync|eventNoTiming)
}

// wait waits for the events of the fences in the order of the stream, calls each fence's function and completes it.
func (s *Stream) wait() {
	for f := range s.waiting { // ends: Close closes it
		f.err = s.device.withContext(func(d *driver) error {
			return d.quick(cuEventSynchronize, f.event)
		})
		s.mu.Lock()
		s.free = append(s.free, f.event)
		s.mu.Unlock()
		if f.then != nil {
			f.then(f.err)
		}
		close(f.done)
	}
}

// Wait waits until the work is done. It returns the error of the work, or ctx's error.
func (f *Fence) Wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	default:
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Handle returns the CUstream, for CUDA libraries that enqueue work on a stream of their caller.
func (s *Stream) Handle() uintptr { return s.handle }
