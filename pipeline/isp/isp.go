// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// The errors of this package, for errors.Is.
var (
	ErrConfig      = errors.New("isp: impossible configuration")
	ErrUnsupported = errors.New("isp: unsupported format")
	ErrMismatch    = errors.New("isp: frame is not of the planned format")
	ErrClosed      = errors.New("isp: stage is closed")
)

// A Stage is a pipeline.Stage on the CPU. Its methods may be called from any goroutine; they take turns.
type Stage struct {
	config Config
	tone   *tone

	gains atomic.Uint64 // packGains of those that were asked for last

	mu      sync.Mutex
	plan    *plan
	workers []*worker // the first runs in the goroutine that calls Process
	done    sync.WaitGroup
	closed  bool
	pass    pass
	stats   Statistics
}

// New builds the tone table and starts the workers, which Close ends.
func New(c Config) (*Stage, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := c.Workers
	if n == 0 {
		n = min(runtime.GOMAXPROCS(0), MaxWorkers)
	}
	s := &Stage{config: c.Clone(), tone: newTone(c)}
	s.gains.Store(packGains(c.Gains))
	for i := range n {
		w := &worker{start: make(chan *pass, 1), end: &s.pass.end, tone: s.tone}
		s.workers = append(s.workers, w)
		if i > 0 {
			s.done.Go(w.run)
		}
	}
	return s, nil
}

// Needs implements pipeline.Stage: it reads a source's frames, with the CPU.
func (s *Stage) Needs(pipeline.Format) (pipeline.StageNeeds, error) {
	return pipeline.StageNeeds{Slices: true}, nil
}

// Plan accepts in as samples of any pipeline.Samples in memory that the CPU may read, and any of UYVY, UYVP, RGB24,
// NV12, I420 and Grey with any colorimetry, at full, half and quarter size, in any order and number. Errors wrap
// ErrUnsupported, ErrConfig (a value is beyond what the sensor's bits allow) or pipeline.ErrFormat and name what was
// asked and what can be made.
func (s *Stage) Plan(in pipeline.Format, want []pipeline.Format) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if in.Memory == pipeline.MemoryWriteCombined {
		return fmt.Errorf("isp: %w: input %s: the CPU cannot read it; take ordinary host memory, or an isp on the GPU", ErrUnsupported, in)
	}
	p, err := newPlan(s.config, s.tone, s.gains.Load(), in, want)
	if err != nil {
		return err
	}
	s.plan = p
	for _, w := range s.workers {
		w.resize(p)
	}
	return nil
}

// SetGains changes the white balance from the next frame on, without waiting for the one in work. An error wraps
// ErrConfig and changes nothing.
func (s *Stage) SetGains(g Gains) error {
	if err := g.Validate(); err != nil {
		return err
	}
	s.gains.Store(packGains(g))
	return nil
}

// Process makes outs out of in, both of the formats of the last Plan. An element of outs may be nil. It returns when all
// bytes are written and Config.Observe, if there is one, has returned, and allocates nothing. It fails before it writes
// anything, with an error that wraps ErrMismatch, ErrClosed or ctx.Err(). If in fills, each output's lines arrive in bands as
// those of in do; then it may also fail under way, with the error of in.
func (s *Stage) Process(ctx context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.plan.check(in, outs); err != nil {
		return err
	}
	s.plan.levels.setGains(s.gains.Load())
	err := s.pass.run(ctx, s, in, outs)
	if err == nil && s.plan.observe {
		err = in.WaitWhole(ctx) // what a damaged frame shows is not to be gone by
	}
	if err != nil {
		s.forget()
		return err
	}
	now := time.Now()
	for _, out := range outs {
		if out != nil {
			out.Times.Processed = now
		}
	}
	if s.plan.observe {
		s.observe(in, outs)
	}
	return nil
}

// Close ends the workers. It may be called twice.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, w := range s.workers {
		close(w.start)
	}
	s.done.Wait()
	return nil
}
