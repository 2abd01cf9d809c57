// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// A Source emits frames of a pool at its format's rate.
type Source struct {
	format pipeline.Format
	pool   *pipeline.Pool
	frames int
	Fill   []*pipeline.Frame // frames whose bytes are emitted in turn
	Ready  chan struct{}     // to be closed by the test when frames may be emitted
}

// NewSource returns a source that emits the given number of frames of format f, 0 for unlimited, after Ready is closed.
func NewSource(t testing.TB, f pipeline.Format, frames int) *Source {
	t.Helper()
	s := &Source{format: f, frames: frames, Ready: make(chan struct{})}
	slots := make([]pipeline.Slot, 8)
	for i := range slots {
		slots[i].Bytes = make([]byte, f.Size())
	}
	s.pool = pipeline.NewPool("source", f, slots, nil)
	for n := range 5 {
		s.Fill = append(s.Fill, Frame(f, n))
	}
	t.Cleanup(func() {
		if err := s.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Format implements pipeline.Source.
func (s *Source) Format() pipeline.Format { return s.format }

// Status implements pipeline.Source.
func (s *Source) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

// Run implements pipeline.Source.
func (s *Source) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	select {
	case <-s.Ready:
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(time.Second * time.Duration(s.format.Rate.Den) / time.Duration(s.format.Rate.Num))
	defer tick.Stop()
	for n := 0; s.frames == 0 || n < s.frames; n++ {
		f, err := s.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		copy(f.Bytes, s.Fill[n%len(s.Fill)].Bytes)
		f.Sequence, f.Times.Captured = uint64(n), time.Now()
		emit(f)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Run runs a graph with one source and the sink until the source ends, and returns the output's counters. All of the
// source's slots may wait for the sink, so that a slow sink loses no frame.
func Run(t testing.TB, ctx context.Context, src *Source, s pipeline.Sink) pipeline.OutputStats {
	t.Helper()
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler)})
	if err := g.AddSource("source", src); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "rtp", Sink: s, Depth: src.pool.Len()})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(ctx); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return o.Stats()
}
