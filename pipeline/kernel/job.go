// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// A job is a frame being processed, and the fence of its outputs.
type job struct {
	sequence uint64
	format   pipeline.Format
	outs     []*pipeline.Frame // the wanted outputs
	work     pipeline.Fence
	program  *loaded
	number   int
	done     chan struct{}
	err      error // valid after done is closed
}

// newJob returns a job for a frame and its wanted outputs.
func newJob(in *pipeline.Frame, outs []*pipeline.Frame) *job {
	j := &job{sequence: in.Sequence, format: in.Format, done: make(chan struct{})}
	for _, o := range outs {
		if o != nil {
			j.outs = append(j.outs, o)
		}
	}
	return j
}

// Wait implements pipeline.Fence.
func (j *job) Wait(ctx context.Context) error {
	select {
	case <-j.done:
		return j.err
	default:
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait finishes the jobs, in the order in which the device runs them, until Close.
func (s *Stage) wait() {
	for j := range s.pending { // ends: Close closes it, and jobs have time limits
		j.err = s.finish(j)
		close(j.done)
	}
}

const (
	looks    = 16 // number of checks, within a frame's time limit, whether its kernel is running
	patience = 10 // limit, in multiples of the frame's time limit, for everything that a frame waits for
)

// await waits for a job's work, and returns its error or the fault by which the GPU was lost. A frame's time limit
// starts with its kernel, which may have to wait for others.
func (s *Stage) await(j *job) error {
	for looked, worked := 1, 0; ; looked++ {
		ctx, cancel := context.WithTimeout(context.Background(), s.config.TimeLimit/looks)
		err := j.work.Wait(ctx)
		over := ctx.Err() != nil && errors.Is(err, ctx.Err())
		cancel()
		if f := s.order.Fault(); f != nil {
			return f
		}
		if err != nil && !over {
			return s.failed(j.program, j.number, j.sequence, err)
		}
		if err == nil {
			return nil
		}
		if j.program.working(j.number) {
			worked++
		}
		if worked > looks { // one more, because the first interval may have been short
			return s.lose(j.program.key, j.sequence, fmt.Errorf("%w: it is not done after %v", ErrHung, s.config.TimeLimit))
		}
		if looked >= patience*looks {
			return s.order.lose(s.faultError(j.sequence, fmt.Errorf("%w: the frame is not done after %v", ErrStuck, patience*s.config.TimeLimit)))
		}
	}
}

// finish waits for a job's work, and completes its outputs: their results, if the kernel finds any, and
// Times.Processed.
func (s *Stage) finish(j *job) error {
	if err := s.await(j); err != nil {
		return err
	}
	if s.config.Results {
		r := s.config.result(j.program.results(j.number), j.format)
		for _, o := range j.outs {
			o.Results = append(o.Results, r)
		}
	}
	now := time.Now()
	for _, o := range j.outs {
		o.Times.Processed = now
	}
	return nil
}
