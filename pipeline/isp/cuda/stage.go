// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// A Transfer is how a frame's bytes come to the GPU, and the pictures back.
type Transfer uint8

const (
	Auto    Transfer = iota // InPlace on an integrated GPU, else Staged
	InPlace                 // kernels read and write host memory
	Staged                  // copies to and from the GPU's memory, while kernels work on another frame
)

// Options say how a Stage works; what it makes does not depend on them.
type Options struct {
	Transfer Transfer
	Cache    string // folder of compiled kernels; "" keeps none

	// Fault, if there is one, is told, once, of an error after which the process cannot use CUDA any more
	// (pipeline.DeviceLost). It must not wait for the Stage.
	Fault func(error)
}

var _ pipeline.DeviceError = (*cudahost.Error)(nil)

// inFlight is how many frames may be in work: one on its way in, one in the kernels, one on its way out.
const inFlight = 3

// Holds is how many frames a stage holds at a time besides those that wait for it.
const Holds = inFlight + 1

// A Stage is a pipeline.Stage on the GPU. Its methods may be called from any goroutine; they take turns.
type Stage struct {
	memory   *cudahost.CUDA
	compiler *cudahost.Compiler
	config   isp.Config
	staged   bool
	linked   bool        // kernels reach frames over a link
	observe  bool        // statistics are wanted
	fault    func(error) // nil: nobody wants to hear it
	once     sync.Once

	gains atomic.Pointer[isp.Gains] // that were asked for last

	mu            sync.Mutex
	closed        bool
	in, work, out *cudahost.Stream // the first and the last are those of copies, and nil without
	plan          *plan
	stats         isp.Statistics // of the frame whose work has just ended
	bandLines     int            // of a frame that fills: so many are waited for before the next kernels
}

// New opens the run-time compiler; kernels are compiled by Plan. Errors wrap isp.ErrConfig or cudahost.ErrNoCUDA. Close
// gives back what the stage holds, before the memory is closed.
func New(memory *cudahost.CUDA, c isp.Config, o Options) (*Stage, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	compiler, err := memory.Device.NewCompiler(o.Cache)
	if err != nil {
		return nil, fmt.Errorf("isp on CUDA: %w", err)
	}
	s := &Stage{memory: memory, compiler: compiler, config: c.Clone(), fault: o.Fault, bandLines: bandLines}
	s.observe = c.Observe != nil || c.Results != ""
	s.gains.Store(&c.Gains)
	s.staged = o.Transfer == Staged || o.Transfer == Auto && !memory.Device.Integrated
	s.linked = !s.staged && !memory.Device.Integrated
	if err := s.openStreams(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stage) openStreams() (err error) {
	list := []**cudahost.Stream{&s.work}
	if s.staged {
		list = append(list, &s.in, &s.out)
	}
	for _, to := range list {
		if *to, err = s.memory.Device.NewStream(); err != nil {
			return fmt.Errorf("isp on CUDA: %w", err)
		}
	}
	return nil
}

// last is the stream that ends a frame's work.
func (s *Stage) last() *cudahost.Stream {
	if s.staged {
		return s.out
	}
	return s.work
}

// Needs implements pipeline.Stage: it reads a source's frames, by kernels or by the GPU's copies.
func (s *Stage) Needs(pipeline.Format) (pipeline.StageNeeds, error) {
	return pipeline.StageNeeds{Holds: Holds, OnDevice: true, Slices: true}, nil
}

// Plan accepts what isp.Stage accepts, and write-combined memory as input, with the same errors, and compiles the kernels for it: that takes seconds, or
// nothing when they are in the cache. Errors of the compiler wrap cudahost.ErrCompile.
func (s *Stage) Plan(in pipeline.Format, want []pipeline.Format) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return isp.ErrClosed
	}
	r, err := isp.NewRecipe(s.config, in, want)
	if err != nil {
		return err
	}
	p, err := s.newPlan(r)
	if err != nil {
		return err
	}
	old := s.plan
	s.plan = p
	return s.drop(old)
}

// drop gives up a plan when its last frame is done.
func (s *Stage) drop(p *plan) error {
	if p == nil {
		return nil
	}
	for i := range p.jobs {
		if f := p.jobs[i].fence; f != nil {
			_ = f.Wait(context.Background()) // who waited for the frame has its error
		}
	}
	return p.Close()
}

// synchronize waits until all work is done.
func (s *Stage) synchronize() error {
	var errs []error
	for _, stream := range []*cudahost.Stream{s.in, s.work, s.out} {
		if stream != nil {
			errs = append(errs, stream.Synchronize())
		}
	}
	return errors.Join(errs...)
}

// SetGains changes the white balance from the next frame on. An error wraps isp.ErrConfig and changes nothing.
func (s *Stage) SetGains(g isp.Gains) error {
	if err := g.Validate(); err != nil {
		return err
	}
	s.gains.Store(&g)
	return nil
}

// Process puts the work on outs on the GPU and returns; outs' Ready tells when their bytes are final. in and outs are
// of the formats of the last Plan, and in memory of cudahost.CUDA. Times.Processed is set when the bytes are final.
// Config.Observe is called, and Config.Results are added, before Ready opens. An element of outs may be nil; without any,
// it returns when the work is done. When inFlight frames are in work it waits for the oldest. It fails before anything is
// written, with an error that wraps isp.ErrMismatch, isp.ErrClosed or ctx.Err(), or with CUDA's, when nothing is being
// written any more.
//
// If in or an output fills, outs' lines arrive as those of in do, and Process returns when all are final and in is complete;
// it may also fail under way then, with the error of in, when nothing is being written any more.
func (s *Stage) Process(ctx context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return isp.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.check(in, outs); err != nil {
		return err
	}
	j := s.plan.next()
	if j.fence != nil {
		if err := j.fence.Wait(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return fmt.Errorf("isp on CUDA: the frame before: %w", err)
		}
	}
	s.begin(j, in)
	if in.Filling() || slices.ContainsFunc(outs, func(out *pipeline.Frame) bool { return out != nil && out.Filling() }) {
		return s.follow(ctx, j, in, outs)
	}
	if err := s.enqueue(j, in, outs, in.Format.Height); err != nil {
		return s.failed(err)
	}
	j.note(in, outs)
	fence, err := s.last().FenceThen(j.finish)
	if err != nil {
		return s.failed(err)
	}
	j.fence = fence
	ready := false
	for _, out := range outs {
		if out != nil {
			out.Ready, ready = fence, true
		}
	}
	if !ready { // nobody would hold the input while it is read
		return fence.Wait(context.WithoutCancel(ctx))
	}
	return nil
}

// failed waits until nothing is being written any more.
func (s *Stage) failed(err error) error {
	s.tell(err)
	return errors.Join(fmt.Errorf("isp on CUDA: %w", err), s.synchronize())
}

// check says whether the frames are those of the plan, in memory that the device reaches.
func (s *Stage) check(in *pipeline.Frame, outs []*pipeline.Frame) error {
	if s.plan == nil {
		return (*isp.Recipe)(nil).Check(in, outs)
	}
	if err := s.plan.recipe.Check(in, outs); err != nil {
		return err
	}
	if in.Device == 0 {
		return fmt.Errorf("%w: input has no device address: allocate it with the CUDA memory back end", isp.ErrMismatch)
	}
	for i, out := range outs {
		if out != nil && out.Device == 0 {
			return fmt.Errorf("%w: output %d has no device address: allocate it with the CUDA memory back end", isp.ErrMismatch, i)
		}
	}
	return nil
}

// tell reports an error that is the end of CUDA in this process.
func (s *Stage) tell(err error) {
	if s.fault != nil && pipeline.DeviceLost(err) {
		s.once.Do(func() { s.fault(fmt.Errorf("isp on CUDA: %w", err)) })
	}
}

// Close waits for the frames in work and gives everything back. It may be called twice.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, stream := range []*cudahost.Stream{s.in, s.work, s.out} {
		if stream != nil {
			errs = append(errs, stream.Close())
		}
	}
	if s.plan != nil {
		errs = append(errs, s.plan.Close())
	}
	return errors.Join(errs...)
}
