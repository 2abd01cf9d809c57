// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// How long a receiver waits before it connects again: twice as long each time.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
)

// defaultBuffers is how many frames a receiver takes that does not say.
const defaultBuffers = 4

// ErrChanged says that the stream has come back with frames of another format.
var ErrChanged = errors.New("the stream has another format now")

// ReceiverConfig is what a receiver wants.
type ReceiverConfig struct {
	Address string // of the sender: host:port
	Stream  string // its name; empty: the only one
	Every   int    // nth frame; 0: each
	Region  Region
	Buffers int // frames that it has memory for: its credits; 0: 4
	// Unverified says that pixels are not compared with their CRC.
	Unverified bool
	// Memory makes the buffers; nil: pages of this process. Of memory that the CPU cannot read pixels are not verified.
	Memory pipeline.Allocator
	Logger *slog.Logger // nil: slog.Default()
}

// A Receiver takes the frames of one stream. It connects again when the connection breaks. It implements pipeline.Source: its frames
// are leases on its buffers, and a frame that is released is a credit for the sender.
type Receiver struct {
	config ReceiverConfig
	log    *slog.Logger
	local  string // release of UCX
	dial   func(ctx context.Context, a *attempt) (link, error)
	// register makes a buffer known to UCX, until shut.
	register func(s pipeline.Slot, size int) error
	shut     func() error

	cancel  context.CancelFunc
	running sync.WaitGroup
	ready   chan struct{} // closed when the format is known, or failed is set
	known   sync.Once     // closes it
	taken   chan struct{} // closed when Run begins
	taking  sync.Once
	arrived chan arrival
	tally   tally

	mu      sync.Mutex
	now     *attempt // nil: there is none
	format  pipeline.Format
	pool    *pipeline.Pool
	free    int   // buffers that no frame is in
	failed  error // it does not connect again
	trouble error // of the last attempt
}

// An arrival is a frame that is complete.
type arrival struct {
	frame   *pipeline.Frame
	header  frameHeader
	at      time.Time
	results []byte
}

func newReceiver(c ReceiverConfig, local string) (*Receiver, error) {
	c.Every, c.Buffers = cmp.Or(c.Every, 1), cmp.Or(c.Buffers, defaultBuffers)
	if c.Every < 1 || c.Buffers < 1 || c.Buffers > maxCredits || len(c.Stream) > maxName {
		return nil, fmt.Errorf("frames: every %d, %d buffers, stream %q: take every first or later frame, 1 to %d buffers, and a name of at most %d bytes",
			c.Every, c.Buffers, c.Stream, maxCredits, maxName)
	}
	if err := CheckRemote(c.Address); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Receiver{
		config: c, log: c.Logger, local: local, ready: make(chan struct{}), taken: make(chan struct{}), arrived: make(chan arrival, c.Buffers), free: c.Buffers,
	}, nil
}

// start connects, and waits until the format is known.
func (r *Receiver) start(ctx context.Context) error {
	run, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.running.Go(func() { r.maintain(run) })
	select {
	case <-r.ready:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.failed
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		return errors.Join(ctx.Err(), r.trouble)
	}
}

// maintain connects, again and again. The first frame of a connection has waits begin anew.
func (r *Receiver) maintain(ctx context.Context) {
	var faults pipeline.FaultLog
	loop := pipeline.Recovery{First: firstWait, Last: lastWait}
	_ = loop.Run(ctx, func(ctx context.Context) (pipeline.Outcome, error) {
		a := newAttempt(r, time.Now())
		err := a.run(ctx)
		switch {
		case ctx.Err() == nil && final(err):
			r.fail(err)
		case a.hasFrames():
			return pipeline.Settled, err
		}
		return pipeline.Fruitless, err
	}, func(_ context.Context, err error) (atOnce bool) {
		r.mu.Lock()
		r.trouble = err
		r.mu.Unlock()
		if left, due := faults.Due("", time.Now()); due {
			r.log.Warn("ucx: the connection is broken and will be tried again",
				pipeline.Unlogged([]any{"sender", r.config.Address, "in", loop.Pause(), "error", err}, left)...)
		}
		return false
	})
}

// final says whether it is of no use to connect again.
func final(err error) bool {
	var b *ByeError
	return errors.As(err, &b) && b.Code.final() || errors.Is(err, ErrChanged) || errors.Is(err, ErrRegion) || errors.Is(err, errMemory)
}

var errMemory = errors.New("frames: no buffers")

// fail ends the receiver: it does not connect again.
func (r *Receiver) fail(err error) {
	r.mu.Lock()
	r.failed = err
	r.mu.Unlock()
	r.known.Do(func() { close(r.ready) })
	r.cancel()
}

// prepare makes the buffers for frames of a format, or says why those that there are do not do.
func (r *Receiver) prepare(f pipeline.Format) error {
	r.mu.Lock()
	made, have := r.pool != nil, r.format
	r.mu.Unlock()
	if made && have != f {
		return fmt.Errorf("%w: %s instead of %s: start the receiver again", ErrChanged, f, have)
	} else if made {
		return nil
	}
	var slots []pipeline.Slot
	var err error
	for len(slots) < r.config.Buffers && err == nil {
		var s pipeline.Slot
		if s, err = r.allocate(f); err == nil {
			slots = append(slots, s)
			err = r.register(s, f.Size())
		}
	}
	r.mu.Lock()
	r.format, r.pool = f, pipeline.NewPool("ucx", f, slots, func(int) { r.released() })
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w for %s: %w", errMemory, f, err)
	}
	r.known.Do(func() { close(r.ready) })
	return nil
}

// unmap forgets a buffer; nil: UCX did not know it.
func unmap(m *ucx.Memory) error {
	if m == nil {
		return nil
	}
	return m.Close()
}

func (r *Receiver) allocate(f pipeline.Format) (pipeline.Slot, error) {
	if r.config.Memory != nil {
		return r.config.Memory.AllocSlot(f)
	}
	b, err := unix.Mmap(-1, 0, f.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return pipeline.Slot{}, os.NewSyscallError("mmap", err)
	}
	return pipeline.Slot{Bytes: b, Close: func() error { return os.NewSyscallError("munmap", unix.Munmap(b)) }}, nil
}

// released gives a credit for a buffer that is free again.
func (r *Receiver) released() {
	r.mu.Lock()
	r.free++
	a := r.now
	r.mu.Unlock()
	if a != nil {
		a.grant(time.Now())
	}
}

// Format implements pipeline.Source.
func (r *Receiver) Format() pipeline.Format { return r.format }

// Status implements pipeline.Source. Frames wait for their consumers: the sender gets no credits meanwhile. Whether its camera is
// idle is not known here, so a stream that is silent is no fault.
func (r *Receiver) Status() pipeline.SourceStatus {
	st := r.Stats()
	return pipeline.SourceStatus{Slots: r.config.Buffers, Idle: true, Waits: true, Counters: map[string]uint64{
		"connections": st.Connections, "lost": st.Lost, "mismatched": st.Mismatched,
	}}
}

// Run implements pipeline.Source. It hands on each frame that is complete and whose CRC is right. It returns an error when it makes
// no sense to connect again. Frames come from the first one behind its call.
func (r *Receiver) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	r.taking.Do(func() { close(r.taken) })
	ended := make(chan struct{})
	go func() { r.running.Wait(); close(ended) }()
	for {
		select {
		case a := <-r.arrived:
			if r.finish(a) {
				emit(a.frame)
			}
		case <-ctx.Done():
			return nil
		case <-ended:
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.failed
		}
	}
}

// Close ends the connection and frees the buffers. An error that wraps pipeline.ErrLeaked says that frames are still held.
func (r *Receiver) Close() error {
	r.cancel()
	r.running.Wait()
	for {
		select {
		case a := <-r.arrived:
			a.frame.Release()
			continue
		default:
		}
		break
	}
	errs := []error{r.shut()}
	if r.pool != nil {
		errs = append(errs, r.pool.Close())
	}
	return errors.Join(errs...)
}
