package main

import (
	"context"
	"time"

	"tegracast/cudahost"
	"tegracast/pipeline"
)

// slots are the frames in rotation, as many as the C program has: an output always has the next one waiting.
const slots = 3

// source gives the same few frames again and again, as fast as they are sent or at a rate.
type source struct {
	format pipeline.Format
	pool   *pipeline.Pool
	frames int
	rate   int
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
	return &source{f, pipeline.NewPool("frames", f, all, nil), frames, rate}, nil
}

// Format implements pipeline.Source.
func (s *source) Format() pipeline.Format { return s.format }

// Run implements pipeline.Source.
func (s *source) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
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

// ticker waits for the next frame's time, or not at all.
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
