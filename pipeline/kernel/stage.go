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

// A Transfer is a way of getting frames to the GPU, and back.
type Transfer uint8

const (
	Auto    Transfer = iota // InPlace on an integrated GPU, otherwise Staged
	InPlace                 // the kernel reads and writes host memory
	Staged                  // copies to and from the GPU's memory
)

// Options configures how a Stage works.
type Options struct {
	Transfer   Transfer
	Cache      string       // folder for compiled kernels; "" means none
	Quarantine *Quarantine  // must not be nil
	Order      *Order       // that of the GPU; must not be nil
	Logger     *slog.Logger // nil: slog.Default()
}

// A Stage is a pipeline.Stage that runs a user's kernel. Its methods may be called from any goroutine; Plan, Process
// and Close exclude one another.
type Stage struct {
	config     Config
	device     device
	quarantine *Quarantine
	order      *Order
	log        *slog.Logger

	pending chan *job             // jobs for which wait waits
	exiled  atomic.Pointer[Entry] // why the kernel is skipped; nil if it is not
	stop    context.CancelFunc    // stops watching the file
	watched sync.WaitGroup
	waited  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	program *loaded // nil while the kernel is skipped
	in      pipeline.Format
	want    []pipeline.Format
	jobs    [inFlight]*job
	turn    int
}

// New compiles the kernel, or skips it if it is in quarantine, and watches its file from then on. Errors wrap
// ErrConfig, cudahost.ErrNoCUDA or cudahost.ErrCompile, or come from CUDA. Close must be called before the memory is
// closed.
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

// newStage returns a Stage that runs the kernel on d, which it then owns.
func newStage(d device, c Config, o Options) (*Stage, error) {
	if c.TimeLimit == 0 {
		c.TimeLimit = DefaultTimeLimit
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Stage{config: c, device: d, quarantine: o.Quarantine, order: o.Order, log: o.Logger, pending: make(chan *job, inFlight)}
	w := watch{stage: s}
	p, err := w.buildFirst()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kernel %s: %w", c.Name, err), d.close())
	}
	s.program = p
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.watched.Go(func() { w.watchFile(ctx) })
	s.waited.Go(s.wait)
	return s, nil
}

// Holds is the maximum number of frames that a stage holds at a time, not counting those in its queue.
const Holds = inFlight + 1

// Quarantined returns the reason why the kernel is skipped, or nil.
func (s *Stage) Quarantined() *Entry { return s.exiled.Load() }

// Plan implements pipeline.Stage. Errors wrap ErrFormat or ErrClosed, or come from CUDA.
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

// settle waits for the frames being processed, whose time is limited (await).
func (s *Stage) settle() {
	for _, j := range s.jobs {
		if j != nil {
			<-j.done // ends: jobs have time limits
		}
	}
}

// Process implements pipeline.Stage. It enqueues the work on the GPU and returns; the Ready fence of outs is signalled
// when bytes and results are final. Frames must have the formats of the latest Plan, and be in memory of cudahost.CUDA.
// While the kernel is skipped, Process copies the picture unchanged, or adds no results. If inFlight frames are being
// processed, Process waits for the oldest. Errors wrap ErrFormat, ErrClosed, ctx.Err() or a *FaultError, or come from
// CUDA.
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
	s.pending <- j // never blocks: at most inFlight jobs are pending
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

// passOn completes the outputs without the kernel: with the unchanged picture, or without new results.
func (s *Stage) passOn(in *pipeline.Frame, j *job) {
	if !s.config.Results {
		copy(j.outs[0].Bytes, in.Bytes)
	}
	for _, o := range j.outs {
		o.Times.Processed = time.Now()
	}
}

// Close waits for the frames being processed and releases everything. If the device is lost it releases nothing,
// because the driver would wait forever for a kernel that hangs, and returns the *FaultError.
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
