// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

type sourceNode struct {
	graph    *Graph
	name     string
	source   Source
	out      *point
	captured atomic.Uint64
	lost     atomic.Uint64
	ended    atomic.Bool // Source.Run returned nil before it was cancelled
	started  bool
	last     uint64
}

func (s *sourceNode) run(ctx context.Context) error {
	defer s.out.close()
	if err := s.source.Run(ctx, func(f *Frame) { s.emit(ctx, f) }); err != nil && !errors.Is(err, context.Canceled) {
		s.graph.cfg.Recorder.Record(s.name, EventFault, s.last, 0)
		return fmt.Errorf("source %s: %w", s.name, err)
	}
	s.ended.Store(ctx.Err() == nil)
	return nil
}

// emit counts the frame and hands it to the consumers of the source. If the source can wait, emit waits in between
// until all of them have room or ctx ends.
func (s *sourceNode) emit(ctx context.Context, f *Frame) {
	if !f.Filling() && f.Times.Captured.IsZero() {
		f.Times.Captured = time.Now()
	}
	s.captured.Add(1)
	if s.started && f.Sequence > s.last+1 {
		gap := f.Sequence - s.last - 1
		s.lost.Add(gap)
		s.graph.cfg.Recorder.Record(s.name, EventLost, f.Sequence, gap)
	}
	s.started, s.last = true, f.Sequence
	s.graph.cfg.Recorder.Record(s.name, EventCaptured, f.Sequence, 0)
	s.out.awaitRoom(ctx)
	s.out.handing.Lock()
	list := *s.out.consumers.Load()
	decide(list, f)
	hand(list, f, f, DropPool)
	s.out.handing.Unlock()
	f.Release()
}
