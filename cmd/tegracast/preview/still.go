// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"bytes"
	"context"

	"github.com/tegracast/tegracast/pipeline"
)

// A Still is a sink that copies one frame and ignores the others.
type Still struct {
	taken chan *pipeline.Frame
}

// NewStill returns a sink for frames that the CPU can read.
func NewStill() *Still { return &Still{make(chan *pipeline.Frame, 1)} }

// Needs implements pipeline.Sink.
func (s *Still) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

// Run implements pipeline.Sink.
func (s *Still) Run(ctx context.Context, q *pipeline.Queue) error {
	defer close(s.taken)
	for taken := false; ; taken = true {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		if !taken {
			s.taken <- &pipeline.Frame{
				Format: f.Format, Bytes: bytes.Clone(f.Bytes), Sequence: f.Sequence, Times: f.Times, Flags: f.Flags, CRC: f.CRC,
			}
		}
		q.Done(f)
	}
}

// Frame waits for the frame. It returns ErrEnded if the sink ends before a frame comes, or ctx's error.
func (s *Still) Frame(ctx context.Context) (*pipeline.Frame, error) {
	select {
	case f := <-s.taken:
		if f == nil {
			return nil, ErrEnded
		}
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
