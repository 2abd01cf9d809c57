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
	refused  uint64 // SourceStatus.Refused, as far as it is accounted for
}

func (s *sourceNode) run(ctx context.Context) error {
	defer s.out.close()
	if m := s.graph.cfg.Member; m != nil {
		defer m.Ended()
	}
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
	gap := uint64(0)
	if s.started && f.Sequence > s.last+1 {
		gap = f.Sequence - s.last - 1
		s.lost.Add(gap)
		s.graph.cfg.Recorder.Record(s.name, EventLost, f.Sequence, gap)
	}
	s.started, s.last = true, f.Sequence
	s.graph.cfg.Recorder.Record(s.name, EventCaptured, f.Sequence, 0)
	s.number(f, gap)
	s.out.awaitRoom(ctx)
	s.out.handing.Lock()
	list := *s.out.consumers.Load()
	decide(list, f)
	hand(list, f, f, DropPool)
	s.out.handing.Unlock()
	f.Release()
}

// number lets the source's member number a frame, before which gap frames are missing.
func (s *sourceNode) number(f *Frame, gap uint64) {
	m := s.graph.cfg.Member
	if m == nil {
		return
	}
	damaged := uint64(0)
	if gap > 0 {
		refused := s.source.Status().Refused
		damaged, s.refused = min(gap, refused-min(refused, s.refused)), refused
	}
	if f.Filling() {
		f.emitter = s
	}
	m.Take(f, gap-damaged, damaged)
}

// finished tells the source's member about the end of a frame that was emitted while it was filling. If it is damaged,
// it is accounted for.
func (s *sourceNode) finished(f *Frame, damaged bool) {
	if damaged {
		s.refused = s.source.Status().Refused
	}
	s.graph.cfg.Member.Finished(f, damaged)
}
