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

// A Transfer is a way of getting a frame's bytes to the GPU, and the pictures back.
type Transfer uint8

const (
	Auto    Transfer = iota // InPlace on an integrated GPU, otherwise Staged
	InPlace                 // kernels read and write host memory
	Staged                  // copies to and from the GPU's memory, while kernels work on another frame
)

// Options configures how a Stage works. The pictures do not depend on it.
type Options struct {
	Transfer Transfer
	Cache    string // folder for compiled kernels; "" means none

	// Fault, if not nil, is called once with an error after which the process cannot use CUDA any more
	// (pipeline.DeviceLost). It must not wait for the Stage.
	Fault func(error)
}

var _ pipeline.DeviceError = (*cudahost.Error)(nil)

// inFlight is the maximum number of frames that are processed at a time: one being copied in, one in the kernels, one
// being copied out.
const inFlight = 3

// Holds is the maximum number of frames that a stage holds at a time, not counting those in its queue.
const Holds = inFlight + 1

// A Stage is a pipeline.Stage on the GPU. Its methods may be called from any goroutine; Plan, Process and Close exclude
// one another.
type Stage struct {
	memory   *cudahost.CUDA
	compiler *cudahost.Compiler
	config   isp.Config
	staged   bool
	linked   bool        // kernels access frames over a link
	observe  bool        // statistics are needed
	fault    func(error) // called at most once, when the GPU is lost; may be nil
	once     sync.Once

	gains atomic.Pointer[isp.Gains] // last requested gains

	mu            sync.Mutex
	closed        bool
	in, work, out *cudahost.Stream // in and out are for copies, and nil without copies
	plan          *plan
	stats         isp.Statistics // of the last completed frame
	bandLines     int            // the constant bandLines, unless a test changes it
}

// New opens the run-time compiler; kernels are compiled by Plan. Errors wrap isp.ErrConfig or cudahost.ErrNoCUDA, or
// are CUDA's. Close must be called before the memory is closed.
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

// last returns the stream in which a frame's work ends.
func (s *Stage) last() *cudahost.Stream {
	if s.staged {
		return s.out
	}
	return s.work
}

// Needs implements pipeline.Stage. The stage reads a source's frames with kernels or by copies of the GPU.
func (s *Stage) Needs(pipeline.Format) (pipeline.StageNeeds, error) {
	return pipeline.StageNeeds{Holds: Holds, OnDevice: true, Slices: true}, nil
}

// Plan accepts the formats that isp.Stage accepts, and also input in write-combined memory. For other formats it
// returns the same errors. It compiles the kernels for the formats, which takes about a second, or no time if they are in the
// cache; those for memory that is not aligned to 16 bytes are compiled when a frame needs them. Compile errors wrap
// cudahost.ErrCompile.
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

// drop waits until all frames of a plan are done, and closes the plan, which may be nil.
func (s *Stage) drop(p *plan) error {
	if p == nil {
		return nil
	}
	for i := range p.jobs {
		if f := p.jobs[i].fence; f != nil {
			_ = f.Wait(context.Background()) // the consumer of the frame gets this error
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

// SetGains changes the white balance from the next frame on. If it returns an error, which wraps isp.ErrConfig, nothing
// has changed.
func (s *Stage) SetGains(g isp.Gains) error {
	if err := g.Validate(); err != nil {
		return err
	}
	s.gains.Store(&g)
	return nil
}

// Process enqueues the work on outs on the GPU and returns; the Ready fence of outs opens when their bytes are final.
// in and outs must have the formats of the last Plan, and be in memory of cudahost.CUDA. Times.Processed is set when
// the bytes are final. Config.Observe is called, and Config.Results are added, before Ready opens. Elements of outs may
// be nil; if all are, Process returns when the work is done. If Holds-1 frames are being processed, Process waits for
// the oldest. If it fails with an error that wraps isp.ErrMismatch, isp.ErrClosed or ctx.Err(), it has written nothing.
// If it fails with an error of CUDA, or of the compiler, nothing is being written any more.
//
// If in or an output is filling, outs' lines arrive as those of in do, and Process returns when all are final and in is
// complete. It may then also fail later, with the error of in or ctx.Err(), when nothing is being written any more.
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
	s.prepareJob(j, in)
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
	if !ready { // no consumer would hold the input while it is read
		return fence.Wait(context.WithoutCancel(ctx))
	}
	return nil
}

// failed calls reportLost with err, waits until nothing is being written any more, and returns err, wrapped.
func (s *Stage) failed(err error) error {
	s.reportLost(err)
	return errors.Join(fmt.Errorf("isp on CUDA: %w", err), s.synchronize())
}

// check returns an error unless the frames match the plan and are in memory that the device can access.
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

// reportLost reports err if CUDA cannot be used in this process after it. It reports only the first such error, and
// ignores others.
func (s *Stage) reportLost(err error) {
	if s.fault != nil && pipeline.DeviceLost(err) {
		s.once.Do(func() { s.fault(fmt.Errorf("isp on CUDA: %w", err)) })
	}
}

// Close waits for the frames being processed and releases everything. Further calls do nothing.
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
