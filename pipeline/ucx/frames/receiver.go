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

// Pauses before a receiver reconnects, or a server tries again to listen: the first one, and the longest. Pauses
// double.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
)

// defaultBuffers is the default number of buffers.
const defaultBuffers = 4

// ErrChanged means that the stream has come back with another format.
var ErrChanged = errors.New("the stream has another format now")

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	Address string // of the sender: host:port
	Stream  string // name of the stream; empty: the only one
	Every   int    // take every nth frame; 0: all
	Region  Region
	Buffers int // number of frame buffers, and so of credits; 0: 4
	// Unverified turns off the comparison of pixels with their CRC.
	Unverified bool
	// Memory allocates the buffers; nil: memory of this process. Pixels in memory that the CPU cannot read are not
	// verified.
	Memory pipeline.Allocator
	Logger *slog.Logger // nil: slog.Default()
}

// A Receiver receives the frames of one stream. It reconnects when the connection breaks. It implements
// pipeline.Source: its frames are leases on its buffers, and each frame that is released becomes a credit for the
// sender.
type Receiver struct {
	config ReceiverConfig
	log    *slog.Logger
	local  string // release of UCX on this side
	dial   func(ctx context.Context, a *attempt) (link, error)
	// register registers a buffer with UCX, until shut is called.
	register func(s pipeline.Slot, size int) error
	shut     func() error

	cancel  context.CancelFunc
	running sync.WaitGroup
	ready   chan struct{} // closed when the format is known, or failed is set
	known   sync.Once     // closes ready
	taken   chan struct{} // closed when Run starts
	taking  sync.Once
	arrived chan arrival
	tally   tally

	mu      sync.Mutex
	now     *attempt // current attempt; nil if there is none
	format  pipeline.Format
	pool    *pipeline.Pool
	free    int   // buffers without a frame
	failed  error // why it does not reconnect; nil if it does
	trouble error // error of the last attempt; nil after a success
}

// An arrival is a frame whose pixels have arrived. It is not yet verified.
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

// start connects, and waits until the format is known or ctx ends.
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

// maintain connects again and again, until ctx ends or reconnecting is pointless. After a connection on which a frame
// has arrived, the pauses begin again with the first one.
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

// final reports whether reconnecting is pointless.
func final(err error) bool {
	var b *ByeError
	return errors.As(err, &b) && b.Code.final() || errors.Is(err, ErrChanged) || errors.Is(err, ErrRegion) || errors.Is(err, errMemory)
}

var errMemory = errors.New("frames: no buffers")

// fail ends the receiver: it does not reconnect.
func (r *Receiver) fail(err error) {
	r.mu.Lock()
	r.failed = err
	r.mu.Unlock()
	r.known.Do(func() { close(r.ready) })
	r.cancel()
}

// prepare allocates the buffers for frames of format f. If there are buffers already, it checks that they fit.
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

// unmap unregisters memory. m is nil if it was not registered.
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

// released records that a buffer has become free, and grants the sender credits if there is a connection.
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

// Status implements pipeline.Source. Waits is set: a frame waits until its consumers have room, and meanwhile the
// sender gets no credit for the buffer. It is not known here whether the sender's camera is idle, so a silent stream
// does not count as a fault.
func (r *Receiver) Status() pipeline.SourceStatus {
	st := r.Stats()
	return pipeline.SourceStatus{Slots: r.config.Buffers, Idle: true, Waits: true, Counters: map[string]uint64{
		"connections": st.Connections, "lost": st.Lost, "mismatched": st.Mismatched,
	}}
}

// Run implements pipeline.Source. It emits every frame that is complete, except those whose CRC was compared and is
// wrong, starting with the first one sent after the call. It returns an error when reconnecting is pointless.
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

// Close closes the connection and frees the buffers. The error wraps pipeline.ErrLeaked if frames are still held.
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
