// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// slots is the number of frames in rotation, the same as in the C program: an output always has the next one waiting.
const slots = 3

// source emits the same few frames again and again, as fast as they are sent or at a given rate.
type source struct {
	format pipeline.Format
	pool   *pipeline.Pool
	frames int
	rate   int

	emit    func(*pipeline.Frame) // used without a rate; set when Run starts
	asked   atomic.Uint32
	filling sync.Mutex
	emitted int           // guarded by filling
	ended   chan struct{} // closed when all frames have been emitted
}

func newSource(f pipeline.Format, frames, rate int) (*source, error) {
	memory, err := cudahost.Open(cudahost.Config{Backend: "host"})
	if err != nil {
		return nil, err
	}
	var all []pipeline.Slot
	for range slots {
		b, err := memory.AllocHost(f.Size(), cudahost.Mapped)
		if err != nil {
			return nil, err
		}
		all = append(all, pipeline.Slot{Bytes: b.Bytes(), Close: b.Close})
	}
	s := &source{format: f, frames: frames, rate: rate, ended: make(chan struct{})}
	s.pool = pipeline.NewPool("frames", f, all, func(int) { s.refill() })
	return s, nil
}

// Format implements pipeline.Source.
func (s *source) Format() pipeline.Format { return s.format }

// Status implements pipeline.Source.
func (s *source) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

// Run implements pipeline.Source.
func (s *source) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	if s.rate == 0 {
		s.filling.Lock()
		s.emit = emit
		s.filling.Unlock()
		s.refill()
		select {
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	pace := newTicker(s.rate)
	for n := range s.frames {
		pace.wait()
		f, err := s.pool.Wait(ctx)
		if err != nil {
			return err
		}
		f.Sequence, f.Times.Captured = uint64(n), time.Now()
		emit(f)
	}
	return nil
}

// refill emits a frame for each free slot, on the goroutine that has freed it. A goroutine of the source would have to
// be woken, which is work that a camera does not cause.
func (s *source) refill() {
	s.asked.Add(1)
	for s.filling.TryLock() { // otherwise another goroutine is doing it, and notices the additional request
		asked := s.asked.Load()
		if s.emit == nil {
			s.filling.Unlock()
			return
		}
		for s.emitted < s.frames {
			f := s.pool.Get()
			if f == nil {
				break
			}
			f.Sequence, f.Times.Captured = uint64(s.emitted), time.Now()
			s.emit(f)
			if s.emitted++; s.emitted == s.frames {
				close(s.ended)
			}
		}
		s.filling.Unlock()
		if s.asked.Load() == asked {
			return
		}
	}
}

// A ticker waits for the time of the next frame, or not at all if its period is 0.
type ticker struct {
	next   time.Time
	period time.Duration
}

func newTicker(rate int) *ticker {
	if rate == 0 {
		return &ticker{}
	}
	return &ticker{time.Now(), time.Second / time.Duration(rate)}
}

func (t *ticker) wait() {
	if t.period > 0 {
		time.Sleep(time.Until(t.next))
		t.next = t.next.Add(t.period)
	}
}
