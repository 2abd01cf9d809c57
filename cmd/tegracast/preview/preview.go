// SPDX-License-Identifier: Apache-2.0

// Package preview shows the frames of an output as JPEG pictures while there are viewers.
package preview

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// ErrEnded means that no more pictures come because the output has ended.
var ErrEnded = errors.New("the output has ended")

// A Picture is a frame as a JPEG file. It is never modified.
type Picture struct {
	Sequence uint64    // of the frame
	Time     time.Time // when it was made
	JPEG     []byte
}

// A Sink keeps the newest picture. It encodes a frame only if a viewer has waited for one since the picture before.
// Slow viewers miss pictures and delay nobody else.
type Sink struct {
	encoder rtp.JPEGEncoder
	room    []byte // memory for one encoded picture

	mu     sync.Mutex
	newest *Picture      // nil: none yet
	next   chan struct{} // closed when newest is replaced, and when the sink ends
	asked  bool          // a viewer has waited for a picture since newest was made
	ended  bool
}

// New returns a sink for frames of a format, which must be I420.
func New(f pipeline.Format, encoder rtp.JPEGEncoder) *Sink {
	return &Sink{encoder: encoder, room: make([]byte, 0, 4*f.Size()+4<<10), next: make(chan struct{})}
}

// Needs implements pipeline.Sink.
func (s *Sink) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

// Run implements pipeline.Sink.
func (s *Sink) Run(ctx context.Context, q *pipeline.Queue) error {
	defer s.publishPicture(nil)
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		if !s.isAsked() {
			q.Done(f)
			continue
		}
		file, err := s.encoder.Encode(s.room, f)
		if err != nil {
			q.Fail(f, pipeline.DropSink, err)
			continue
		}
		s.publishPicture(&Picture{Sequence: f.Sequence, Time: time.Now(), JPEG: bytes.Clone(file)})
		q.Done(f)
	}
}

// isAsked reports whether a viewer wants a picture, or there is none yet.
func (s *Sink) isAsked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked || s.newest == nil
}

// publishPicture publishes a picture, or, with nil, the end.
func (s *Sink) publishPicture(p *Picture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil {
		s.ended = true
	} else {
		s.newest, s.asked = p, false
	}
	close(s.next)
	s.next = make(chan struct{})
}

// Next waits for a picture other than old, which may be nil. It returns ErrEnded when no more come, or ctx's error.
func (s *Sink) Next(ctx context.Context, old *Picture) (*Picture, error) {
	for {
		s.mu.Lock()
		newest, next, ended := s.newest, s.next, s.ended
		s.asked = s.asked || newest == nil || newest == old // this viewer waits
		s.mu.Unlock()
		switch {
		case ended:
			return nil, ErrEnded
		case newest != nil && newest != old:
			return newest, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
