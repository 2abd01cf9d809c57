package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tegracast/pipeline"
)

// A job is a frame in work, and the fence of its outputs.
type job struct {
	sequence uint64
	format   pipeline.Format
	outs     []*pipeline.Frame // the wanted ones
	work     pipeline.Fence
	program  *loaded
	number   int
	done     chan struct{}
	err      error // read after done
}

// newJob gives the outputs what they have of the input.
func newJob(in *pipeline.Frame, outs []*pipeline.Frame) *job {
	j := &job{sequence: in.Sequence, format: in.Format, done: make(chan struct{})}
	for _, o := range outs {
		if o != nil {
			o.Sequence, o.Times, o.Flags = in.Sequence, in.Times, in.Flags
			o.Results = append(o.Results, in.Results...)
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

// wait waits for the jobs in their order, which is that of the device, each for as long as a frame may take.
func (s *Stage) wait() {
	for j := range s.pending {
		j.err = s.finish(j)
		close(j.done)
	}
}

// finish waits for a job's work, and takes the results. The time that a frame has begins when the one before is done.
func (s *Stage) finish(j *job) error {
	if f := s.fault.Load(); f != nil {
		return f
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.TimeLimit)
	defer cancel()
	if err := j.work.Wait(ctx); ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return s.lose(j.program.key, j.sequence, fmt.Errorf("%w: it is not done after %v", ErrHung, s.config.TimeLimit))
	} else if err != nil {
		return s.failed(j.program.key, j.sequence, err)
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
