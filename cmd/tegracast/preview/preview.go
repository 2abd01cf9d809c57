// SPDX-License-Identifier: Apache-2.0

// Package preview shows the frames of an output as JPEG pictures while there are viewers.
package preview

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/mjpeg"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// ErrEnded means that no more pictures come because the output has ended.
var ErrEnded = errors.New("the output has ended")

// A Picture is a frame as a JPEG file. It is never modified.
type Picture struct {
	Sequence uint64    // of the frame
	Time     time.Time // when it was made
	JPEG     []byte
	Width    int // of the frame in pixels, to which the regions of Found refer
	Height   int
	Found    []Found // what stages found in the frame
}

// Found has the regions that a stage found in a frame, in the JSON of pipeline.Result.
type Found struct {
	Stage   string            `json:"stage"` // name of the stage
	Regions []pipeline.Region `json:"regions"`
}

// A Sink keeps the newest picture. It encodes a frame only if a viewer has waited for one since the picture before.
// Slow viewers miss pictures and delay nobody else.
type Sink struct {
	encoder rtp.JPEGEncoder
	picture pipeline.Frame // a picture made of a frame with another format
	room    []byte         // memory for one encoded picture

	mu     sync.Mutex
	newest *Picture      // nil: none yet
	next   chan struct{} // closed when newest is replaced, and when the sink ends
	asked  bool          // a viewer has waited for a picture since newest was made
	ended  bool
}

// New returns a sink that makes pictures of a format, which must be I420 with the colours of JPEG, of frames that have it or
// whose pixels it Shows. Frames that are JPEG files are shown as they are.
func New(f pipeline.Format, encoder rtp.JPEGEncoder) *Sink {
	return &Sink{encoder: encoder, picture: pipeline.Frame{Format: f}, room: make([]byte, 0, 4*f.Size()+4<<10), next: make(chan struct{})}
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
		file, err := s.encode(f)
		if err != nil {
			q.Fail(f, pipeline.DropSink, err)
			continue
		}
		s.publishPicture(&Picture{
			Sequence: f.Sequence, Time: time.Now(), JPEG: bytes.Clone(file), Width: f.Format.Width, Height: f.Format.Height, Found: found(f.Results),
		})
		q.Done(f)
	}
}

// encode returns the JPEG file of a frame, which is valid until the next call.
func (s *Sink) encode(f *pipeline.Frame) ([]byte, error) {
	if f.Format.Pixel == pipeline.MJPEG {
		return mjpeg.Append(s.room, f.Bytes)
	}
	return s.encoder.Encode(s.room, s.convert(f))
}

// convert returns a frame as a picture, which is valid until the next call.
func (s *Sink) convert(f *pipeline.Frame) *pipeline.Frame {
	if to := s.picture.Format; f.Format.Pixel == to.Pixel && f.Format.Color == to.Color && f.Format.Width == to.Width && f.Format.Height == to.Height {
		return f
	}
	if s.picture.Bytes == nil {
		s.picture.Bytes = make([]byte, s.picture.Format.Size())
	}
	s.picture.Sequence = f.Sequence
	convert(&s.picture, f)
	return &s.picture
}

// found returns the regions of results.
func found(results []pipeline.Result) (all []Found) {
	for i := range results {
		if r := &results[i]; len(r.Regions) > 0 {
			all = append(all, Found{r.Stage, slices.Clone(r.Regions)})
		}
	}
	return all
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
