// SPDX-License-Identifier: Apache-2.0

// Package preview shows people the frames of an output as JPEG pictures, while they look.
package preview

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/tegracast/tegracast/pipeline"
)

// ErrEnded means that no more pictures come: the output has ended.
var ErrEnded = errors.New("the output has ended")

// An Encoder makes JPEG files.
type Encoder interface {
	// Encode appends a complete file with the picture of f, which is I420, to dst. It does not write beyond dst's capacity.
	Encode(dst []byte, f *pipeline.Frame) ([]byte, error)
}

// A Picture is a frame as a JPEG file. Nobody changes it.
type Picture struct {
	Sequence uint64 // of the frame
	JPEG     []byte
}

// A Sink keeps the newest picture. Those who look slowly miss pictures, and keep nobody waiting.
type Sink struct {
	encoder Encoder
	room    []byte // for a file

	mu     sync.Mutex
	newest *Picture      // nil: none has come
	next   chan struct{} // closed when newest is replaced, and when the sink ends
	ended  bool
}

// New makes a sink for frames of a format, which is I420.
func New(f pipeline.Format, encoder Encoder) *Sink {
	return &Sink{encoder: encoder, room: make([]byte, 0, 4*f.Size()+4<<10), next: make(chan struct{})}
}

// Needs implements pipeline.Sink.
func (s *Sink) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

// Run implements pipeline.Sink.
func (s *Sink) Run(ctx context.Context, q *pipeline.Queue) error {
	defer s.tell(nil)
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		file, err := s.encoder.Encode(s.room, f)
		if err != nil {
			q.Fail(f, pipeline.DropSink, err)
			continue
		}
		s.tell(&Picture{Sequence: f.Sequence, JPEG: bytes.Clone(file)})
		q.Done(f)
	}
}

// tell hands out a picture; nil: there will be no more.
func (s *Sink) tell(p *Picture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil {
		s.ended = true
	} else {
		s.newest = p
	}
	close(s.next)
	s.next = make(chan struct{})
}

// Next waits for a picture that is not old, which may be nil. It returns ErrEnded when none comes any more.
func (s *Sink) Next(ctx context.Context, old *Picture) (*Picture, error) {
	for {
		s.mu.Lock()
		newest, next, ended := s.newest, s.next, s.ended
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
