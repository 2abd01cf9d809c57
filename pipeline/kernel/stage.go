// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// A Transfer is how frames come to the GPU, and back.
type Transfer uint8

const (
	Auto    Transfer = iota // InPlace on an integrated GPU, else Staged
	InPlace                 // the kernel reads and writes host memory
	Staged                  // copies to and from the GPU's memory
)

// Options say how a Stage works.
type Options struct {
	Transfer   Transfer
	Cache      string       // folder of compiled kernels; "" keeps none
	Quarantine *Quarantine  // not nil
	Order      *Order       // not nil; the GPU's
	Logger     *slog.Logger // nil: slog.Default()
}

// A Stage is a pipeline.Stage that is a user's kernel. Its methods may be called from any goroutine; they take turns.
type Stage struct {
	config     Config
	device     device
	quarantine *Quarantine
	order      *Order
	log        *slog.Logger

	pending chan *job             // to those who wait for the device
	exiled  atomic.Pointer[Entry] // why the kernel is left out; nil: it is not
	stop    context.CancelFunc    // of the watch over the file
	watched sync.WaitGroup
	waited  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	program *loaded // nil while the kernel is left out
	in      pipeline.Format
	want    []pipeline.Format
	jobs    [inFlight]*job
	turn    int
}

// New compiles the kernel, or leaves it out when it is in quarantine, and watches its file from then on. Errors wrap
// ErrConfig, cudahost.ErrNoCUDA or cudahost.ErrCompile, or are CUDA's. Close gives back what the stage holds, before
// the memory is closed.
func New(memory *cudahost.CUDA, c Config, o Options) (*Stage, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	d, err := newGPU(memory, &c, o)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", c.Name, err)
	}
	return newStage(d, c, o)
}

// newStage owns the device.
func newStage(d device, c Config, o Options) (*Stage, error) {
	if c.TimeLimit == 0 {
		c.TimeLimit = DefaultTimeLimit
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Stage{config: c, device: d, quarantine: o.Quarantine, order: o.Order, log: o.Logger, pending: make(chan *job, inFlight)}
	w := watch{stage: s}
	p, err := w.begin()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kernel %s: %w", c.Name, err), d.close())
	}
	s.program = p
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.watched.Go(func() { w.run(ctx) })
	s.waited.Go(s.wait)
	return s, nil
}

// Holds is how many frames a stage holds at a time besides those that wait for it.
const Holds = inFlight + 1

// Quarantined returns why the kernel is left out, or nil.
func (s *Stage) Quarantined() *Entry { return s.exiled.Load() }

// Plan implements pipeline.Stage. Errors wrap ErrFormat or ErrClosed, or are CUDA's.
func (s *Stage) Plan(in pipeline.Format, want []pipeline.Format) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.config.accepts(in, want); err != nil {
		return err
	}
	if in != s.in && s.program != nil {
		s.settle()
		if err := s.program.plan(in); err != nil {
			return fmt.Errorf("kernel %s: %w", s.config.Name, err)
		}
	}
	s.in, s.want = in, append(s.want[:0], want...)
	return nil
}

// settle waits for the frames in work: their time is limited (await).
func (s *Stage) settle() {
	for _, j := range s.jobs {
		if j != nil {
			<-j.done // ends: jobs have time limits
		}
	}
}

// Process implements pipeline.Stage: it puts the work on the GPU and returns; the outs' Ready tells when bytes and results
// are final. Frames must be of the formats of the last Plan, in memory of cudahost.CUDA. While the kernel is
// left out, frames are passed on as they are. When inFlight frames are in work it waits for the oldest. Errors wrap
// ErrFormat, ErrClosed, ctx.Err() or a *FaultError, or are CUDA's.
func (s *Stage) Process(ctx context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(in, outs); err != nil {
		return err
	}
	j := newJob(in, outs)
	if len(j.outs) == 0 {
		return nil
	}
	if s.program == nil {
		s.passOn(in, j)
		return nil
	}
	if before := s.jobs[s.turn]; before != nil {
		select {
		case <-before.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f := s.order.Fault(); f != nil {
		return f
	}
	var out *pipeline.Frame
	if !s.config.Results {
		out = j.outs[0]
	}
	work, err := s.program.run(s.turn, in, out)
	j.work, j.program, j.number = work, s.program, s.turn
	if err != nil {
		if work != nil { // until then the frame may be written to
			err = errors.Join(err, s.await(j))
		}
		return s.failed(j.program, j.number, j.sequence, err)
	}
	for _, o := range j.outs {
		o.Ready = j
	}
	s.jobs[s.turn] = j
	s.turn = (s.turn + 1) % inFlight
	s.pending <- j // has room: no more than inFlight are waited for
	return nil
}

func (s *Stage) check(in *pipeline.Frame, outs []*pipeline.Frame) error {
	switch {
	case s.closed:
		return ErrClosed
	case in.Format != s.in || len(outs) != len(s.want):
		return fmt.Errorf("%w: %s and %d outputs, planned were %s and %d", ErrFormat, in.Format, len(outs), s.in, len(s.want))
	}
	for i, o := range outs {
		if o != nil && o.Format != s.want[i] {
			return fmt.Errorf("%w: output %d is %s, planned was %s", ErrFormat, i, o.Format, s.want[i])
		}
	}
	return nil
}

// passOn hands the frame on as it is.
func (s *Stage) passOn(in *pipeline.Frame, j *job) {
	if !s.config.Results {
		copy(j.outs[0].Bytes, in.Bytes)
	}
	for _, o := range j.outs {
		o.Times.Processed = time.Now()
	}
}

// Close waits for the frames in work and gives everything back. When the device is lost it gives back nothing, for the
// driver would wait for ever for a kernel that hangs, and returns the *FaultError.
func (s *Stage) Close() error {
	s.stop()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.settle()
	close(s.pending)
	s.mu.Unlock()
	s.waited.Wait()
	watched := make(chan struct{})
	go func() { s.watched.Wait(); close(watched) }()
	select { // ends: watchers have time limits, or the GPU is lost
	case <-watched:
	case <-s.order.lost:
	}
	if f := s.order.Fault(); f != nil {
		return f
	}
	var err error
	if s.program != nil {
		err = s.program.close()
	}
	return errors.Join(err, s.device.close())
}
