// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/fpga"
)

// SendConfig describes the frames of an H2C stream.
type SendConfig struct {
	Channel int
	Trailer int // number of bytes that follow the pixels in each packet, 1 to 4096; they get a separate descriptor
	Depth   int // maximum number of frames owned by the device; 0: 2
	// Done is called when the device no longer owns a slot: with nil if it has read all of it, or with the reason why
	// it was abandoned. Run or Close calls it exactly once for every Send that returned nil, one call at a time, unless
	// the ring is abandoned. It must not wait for Send or Drain.
	Done func(slot int, err error)
}

// A SendRing sends frames continuously to the card, each as one stream packet: the slot's pixels, then a trailer. Each
// slot is registered once, at any time; slots may be sent in any order.
//
// A frame counts as sent when the channel's counter of completed descriptors, a register, says so.
type SendRing struct {
	feed    *feed
	trailer int
	done    func(int, error)
	room    chan struct{} // holds a value for each frame owned by the device
	stopped chan struct{} // closed while the ring is not running; guarded by feed.mu
	empty   chan struct{} // closed when the device owns no frame; nil if nobody waits; guarded by feed.mu
}

// NewSendRing creates a ring without slots. The caller must close the ring.
func (d *Device) NewSendRing(cfg SendConfig) (*SendRing, error) {
	c, err := d.channel(fpga.H2C, cfg.Channel, true)
	if err != nil {
		return nil, err
	}
	if cfg.Depth == 0 {
		cfg.Depth = 2
	}
	if cfg.Depth < 1 || cfg.Done == nil {
		return nil, c.errorf(ErrMemory, "a ring to send needs a depth of at least 1, not %d, and Done to give slots back", cfg.Depth)
	}
	f, err := newFeed(c, cfg.Depth+1, cfg.Trailer) // the position after the last frame is empty
	if err != nil {
		return nil, err
	}
	r := &SendRing{feed: f, trailer: cfg.Trailer, done: cfg.Done, room: make(chan struct{}, cfg.Depth), stopped: make(chan struct{})}
	close(r.stopped)
	return r, nil
}

// Add registers a frame's memory and returns its slot. It may be called at any time. The memory must stay mapped for
// the device until Close or Replace. Slots may differ in size.
func (r *SendRing) Add(mem fpga.Memory) (slot int, err error) {
	return r.feed.addSlot(mem, mem.Size(), r.trailer, 0)
}

// Replace gives a slot new memory, in place of memory that the device has lost. The error wraps ErrSlot if Run is
// running or could not stop the engine, if there is no such slot, or if the device still owns it; other errors are
// those of Add, or of freeing the old descriptors.
func (r *SendRing) Replace(slot int, mem fpga.Memory) error {
	f := r.feed
	s, err := f.c.newSlot(mem, mem.Size(), r.trailer, 0)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != idle || slot < 0 || slot >= len(f.slots) || f.slots[slot].placed {
		return errors.Join(f.c.errorf(ErrSlot, "slot %d is replaced, the ring has %d and must not run", slot, len(f.slots)), s.memory.Close())
	}
	old := f.slots[slot]
	f.slots[slot] = s
	return old.memory.Close()
}

// Send gives a slot to the device, together with the trailer that ends its packet. It waits while the device owns Depth
// frames, which is the card's back pressure. The slot must not be written to until Done has been called for it. Errors
// wrap ctx's error, ErrStopped if Run is not running, ErrSlot if there is no such slot or the device already owns it,
// or ErrMemory if the trailer has the wrong length. Send may be called concurrently.
func (r *SendRing) Send(ctx context.Context, slot int, trailer []byte) error {
	f := r.feed
	f.mu.Lock()
	stopped := r.stopped
	f.mu.Unlock()
	select {
	case <-stopped:
		return f.stopped()
	default:
	}
	select {
	case r.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-stopped:
		return f.stopped()
	}
	f.mu.Lock()
	err := r.send(slot, trailer)
	f.mu.Unlock()
	if err != nil {
		<-r.room // ends: room holds this goroutine's own value
	}
	return err
}

func (r *SendRing) send(slot int, trailer []byte) error {
	f := r.feed
	switch {
	case f.state != running:
		return f.stopped()
	case slot < 0 || slot >= len(f.slots) || f.slots[slot].placed:
		return f.c.errorf(ErrSlot, "slot %d is sent, the ring has %d", slot, len(f.slots))
	case len(trailer) != r.trailer:
		return f.c.errorf(ErrMemory, "a trailer of %d bytes, they have %d", len(trailer), r.trailer)
	}
	copy(f.slots[slot].trailer, trailer)
	f.place(slot)
	if err := f.pump(); err != nil {
		f.failed = err // the device owns the frame, and Run must end
	}
	return nil
}

// Run starts the engine and serves it until ctx ends or the engine fails. Before Run returns, it stops the engine and
// calls Done for every slot owned by the device, unless the error wraps ErrBusy. In that case the slots must stay
// mapped, and Run or Close may be called again. If ctx ends and the engine could be stopped, Run returns nil.
func (r *SendRing) Run(ctx context.Context) (err error) {
	if err := r.halt(); err != nil { // left over from a previous Run
		return err
	}
	f := r.feed
	if err := f.start(nil); err != nil {
		return err
	}
	f.mu.Lock()
	r.stopped, f.failed = make(chan struct{}), nil
	f.mu.Unlock()
	defer func() { err = errors.Join(err, r.halt()) }()
	hint := true
	for {
		if err := r.collect(hint); err != nil {
			return err
		}
		if hint, err = f.wait.wait(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := f.serveHint(hint); err != nil {
			return err
		}
	}
}

// collect calls Done for the slots of all frames that have been sent.
func (r *SendRing) collect(hint bool) error {
	for {
		slot, ok, err := r.sent(hint)
		if !ok || err != nil {
			return err
		}
		r.done(slot, nil)
		<-r.room // ends: Send has put a value there
	}
}

// sent removes the oldest frame and returns its slot if that frame has been sent. Otherwise ok is false.
func (r *SendRing) sent(hint bool) (slot int, ok bool, err error) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil || len(f.frames) == 0 {
		return 0, false, f.failed
	}
	slot = f.frames[0].slot
	if ok, err = f.done(f.frames[0].end); !ok {
		return 0, false, err
	}
	f.removeOldest()
	if !hint {
		f.stats.Missed++
	}
	r.signal()
	return slot, true, nil
}

// signal notifies Drain if no frame is left. feed.mu must be held.
func (r *SendRing) signal() {
	if r.empty != nil && len(r.feed.frames) == 0 {
		close(r.empty)
		r.empty = nil
	}
}

// halt stops the engine and calls Done for the slots that it owned, unless the error wraps ErrBusy.
func (r *SendRing) halt() error {
	f := r.feed
	f.mu.Lock()
	if f.state == idle {
		f.mu.Unlock()
		return nil
	}
	select {
	case <-r.stopped:
	default:
		close(r.stopped)
	}
	f.mu.Unlock()
	err := f.stop(nil)
	if errors.Is(err, ErrBusy) {
		return fmt.Errorf("stop: %w", err)
	}
	f.mu.Lock()
	if err == nil {
		_ = f.count() // includes what was sent before the stop
	}
	left, reached := f.frames, f.reached
	f.frames = nil
	for _, frame := range left {
		f.slots[frame.slot].placed = false
	}
	r.signal()
	f.mu.Unlock()
	for _, frame := range left {
		var why error
		if int32(reached-frame.end) < 0 {
			why = f.stopped()
		}
		r.done(frame.slot, why)
		<-r.room // ends: Send has put a value there
	}
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Drain waits until the device owns no frame, or until ctx ends.
func (r *SendRing) Drain(ctx context.Context) error {
	f := r.feed
	f.mu.Lock()
	if len(f.frames) == 0 {
		f.mu.Unlock()
		return nil
	}
	if r.empty == nil {
		r.empty = make(chan struct{})
	}
	empty := r.empty
	f.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stats returns the counters.
func (r *SendRing) Stats() Stats { return r.feed.Stats() }

// Counters returns the channel's performance counters since Run was most recently called.
func (r *SendRing) Counters() (Counters, error) { return r.feed.c.counters() }

// Close frees descriptors and trailers. Run must have returned. If Run could not stop the engine, Close tries again and
// calls Done as Run does; if that fails too, it frees nothing and returns an error that wraps ErrBusy.
func (r *SendRing) Close() error {
	f := r.feed
	f.mu.Lock()
	busy := f.state == running
	f.mu.Unlock()
	if busy {
		return f.c.errorf(ErrBusy, "close of a ring that runs")
	}
	if err := r.halt(); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return f.close()
}
