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

// Errors that callers can distinguish with errors.Is.
var (
	ErrConfig      = errors.New("isp: impossible configuration")
	ErrUnsupported = errors.New("isp: unsupported format")
	ErrMismatch    = errors.New("isp: frame is not of the planned format")
	ErrClosed      = errors.New("isp: stage is closed")
)

// A Stage is a pipeline.Stage that uses the CPU. Its methods may be called from any goroutine; Plan, Process and Close
// exclude one another.
type Stage struct {
	config Config
	tone   *tone

	gains atomic.Uint64 // last requested gains, see packGains

	mu      sync.Mutex
	plan    *plan
	workers []*worker // the first one runs in the goroutine that calls Process
	done    sync.WaitGroup
	closed  bool
	pass    pass
	stats   Statistics
}

// New returns a Stage and starts its workers, which Close ends. The error wraps ErrConfig.
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

// Needs implements pipeline.Stage. The stage reads a source's frames with the CPU.
func (s *Stage) Needs(pipeline.Format) (pipeline.StageNeeds, error) {
	return pipeline.StageNeeds{Slices: true}, nil
}

// Plan accepts as input any format with pipeline.Samples that is not packet-ready, in host memory that the CPU may
// read. It accepts as outputs any number of UYVY, UYVP, RGB24, NV12, I420 and Grey pictures in host memory, of any
// colorimetry, at full, half and quarter size of the turned picture. Errors wrap ErrUnsupported, ErrConfig (a value
// exceeds the sensor's number of bits) or pipeline.ErrFormat, and state what was requested and what is possible. After
// Close the error is ErrClosed.
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

// SetGains changes the white balance from the next frame on, without waiting for the current one. If it returns an
// error, which wraps ErrConfig, nothing has changed.
func (s *Stage) SetGains(g Gains) error {
	if err := g.Validate(); err != nil {
		return err
	}
	s.gains.Store(packGains(g))
	return nil
}

// Process makes outs from in; both must have the formats of the last Plan. Elements of outs may be nil. Process returns
// when all bytes are written and Config.Observe, if set, has returned. It allocates nothing, unless Config.Results is
// set. An error wraps ErrMismatch, ErrClosed or ctx.Err(), and then nothing has been written. If in is filling, lines
// arrive in the filling outputs as they do in in, band by band; then Process may also fail when it has written some,
// with the error of in or ctx.Err().
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
		err = in.WaitWhole(ctx) // a damaged frame must not be observed
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

// Close waits for Process and ends the workers. Further calls do nothing.
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
