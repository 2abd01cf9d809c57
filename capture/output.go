// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/tegra"
)

// FPGAOutputConfig configures an FPGAOutput.
type FPGAOutputConfig struct {
	Card    *Card
	Channel int             // H2C stream channel
	Format  pipeline.Format // of the frames; the frame trailer must be able to describe it, and the CPU to read it
	Name    string          // used in the log; empty: "fpga"
	Logger  *slog.Logger    // nil: slog.Default()
}

// sendDepth is the maximum number of frames at the device.
const sendDepth = 2

// An FPGAOutput is a Sink that sends each frame to the card as one packet of an H2C stream: first the pixels, read by
// DMA from the slot into which a stage has written them, then the frame trailer of docs/fpga-interface.md. The slots
// are pinned when the output is attached.
type FPGAOutput struct {
	cfg  FPGAOutputConfig
	ring *xdma.SendRing

	revoked chan struct{} // receives a value when a pin is revoked

	mu     sync.Mutex
	slots  map[int]*outSlot        // by pool index
	out    map[int]*pipeline.Frame // frames at the device, by the ring's slot number
	given  uint64                  // number of frames that are no longer at the device
	sentOK uint64                  // of these, those that the device has read
	queue  *pipeline.Queue
	done   bool
}

// outSlot is a slot of the pool with its pin and its number in the ring.
type outSlot struct {
	memory pipeline.Slot
	pin    *tegra.Pin
	ring   int // number in the ring
}

// NewFPGAOutput opens the channel and returns the output. The caller must call Run or Close.
func NewFPGAOutput(ctx context.Context, cfg FPGAOutputConfig) (*FPGAOutput, error) {
	cfg.Name = cmp.Or(cfg.Name, "fpga")
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if f := fpga.FourCC(cfg.Format.Pixel); f.Bits() == 0 || cfg.Format.Memory == pipeline.MemoryDevice {
		return nil, fmt.Errorf("%w: output %s: the frame trailer has no name for %s: convert the frames first", ErrHardware, cfg.Name, cfg.Format)
	}
	o := &FPGAOutput{cfg: cfg, revoked: make(chan struct{}, 1), slots: map[int]*outSlot{}, out: map[int]*pipeline.Frame{}}
	device, err := cfg.Card.channel(ctx, o, fpga.H2C, cfg.Channel)
	if err != nil {
		return nil, err
	}
	o.ring, err = device.NewSendRing(xdma.SendConfig{Channel: cfg.Channel, Trailer: fpga.TrailerSize, Depth: sendDepth, Done: o.returnFrame})
	if err != nil {
		cfg.Card.stopped(o)
		return nil, err
	}
	return o, nil
}

// Needs implements pipeline.Sink. The output holds the frames at the device, and one more that waits for room there.
func (o *FPGAOutput) Needs() pipeline.SinkNeeds {
	return pipeline.SinkNeeds{Format: o.cfg.Format, Holds: sendDepth + 1, UseSlot: o.useSlot}
}

// useSlot pins a slot and creates its descriptors.
func (o *FPGAOutput) useSlot(index int, s pipeline.Slot) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return fmt.Errorf("output %s: %w", o.cfg.Name, pipeline.ErrClosed)
	}
	slot := &outSlot{memory: s}
	if err := o.pin(slot, func(mem fpga.Memory) (err error) { slot.ring, err = o.ring.Add(mem); return err }); err != nil {
		return fmt.Errorf("output %s, slot %d: %w", o.cfg.Name, index, err)
	}
	o.slots[index] = slot
	return nil
}

// pin pins a slot and calls describe to create its descriptors. If the pin is revoked later, the card records it, and
// attempt ends.
func (o *FPGAOutput) pin(s *outSlot, describe func(fpga.Memory) error) error {
	pin, memory, err := pinBytes(o.cfg.Card.Memory, o.cfg.Card.Pinner, s.memory.Bytes, tegra.WriteBack, tegra.ToDevice)
	if err != nil {
		return err
	}
	o.cfg.Card.pinned.add(pin)
	if err := describe(memory); err != nil {
		return errors.Join(err, pin.Unpin())
	}
	pin.OnFree(func(why tegra.Reason) {
		if why == tegra.ReasonUnpin {
			return
		}
		o.cfg.Card.revoked(o)
		select {
		case o.revoked <- struct{}{}:
		default:
		}
	})
	s.pin = pin
	return nil
}

// repin lifts the fence, and pins the slots with revoked pins again. The engine must be stopped.
func (o *FPGAOutput) repin(ctx context.Context) error {
	if _, err := o.cfg.Card.channel(ctx, o, fpga.H2C, o.cfg.Channel); err != nil { // lifts the fence
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.slots {
		select {
		case <-s.pin.Revoked():
		default:
			continue
		}
		old := s.pin
		if err := o.pin(s, func(mem fpga.Memory) error { return o.ring.Replace(s.ring, mem) }); err != nil {
			return err
		}
		if err := except(old.Unpin(), tegra.ErrRevoked); err != nil {
			return err
		}
	}
	return nil
}

// Run implements pipeline.Sink. It sends frames, and restarts the engine after a fault. Frames that the device had but
// had not read by then count as dropped. Run closes the output before it returns.
func (o *FPGAOutput) Run(ctx context.Context, q *pipeline.Queue) error {
	o.queue = q
	engine, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop(o.serve(engine))
	}()
	err := o.feed(engine, q)
	if errors.Is(err, pipeline.ErrDetached) { // frames at the device may still be sent
		drain, cancel := context.WithTimeout(ctx, time.Second)
		_ = o.ring.Drain(drain)
		cancel()
	}
	stop(nil)
	<-ended // ends: stop has ended engine
	if cause := context.Cause(engine); cause != nil && !errors.Is(cause, context.Canceled) && ctx.Err() == nil {
		err = cause
	}
	return errors.Join(err, o.Close())
}

// feed sends the frames of q to the ring until q.Next fails, and returns its error.
func (o *FPGAOutput) feed(ctx context.Context, q *pipeline.Queue) error {
	trailer := make([]byte, 0, fpga.TrailerSize)
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		trailer, _ = o.describe(f).AppendBinary(trailer[:0])
		o.mu.Lock()
		slot, known := o.slots[f.Slot()]
		if known {
			o.out[slot.ring] = f
		}
		o.mu.Unlock()
		if !known {
			q.Fail(f, pipeline.DropSink, fmt.Errorf("slot %d was never announced", f.Slot()))
			continue
		}
		if err := o.ring.Send(ctx, slot.ring, trailer); err != nil {
			o.returnFrame(slot.ring, err)
		}
	}
}

func (o *FPGAOutput) describe(f *pipeline.Frame) fpga.Trailer {
	format := f.Format
	return fpga.Trailer{
		Sequence: f.Sequence, Start: nanoseconds(f.Times.ExposureStart), End: nanoseconds(f.Times.ExposureEnd),
		Width: uint32(format.Width), Height: uint32(format.Height), Stride: uint32(format.Stride), Format: fpga.FourCC(format.Pixel),
		Bytes: uint64(format.Size()), Valid: uint64(format.Size()), PixelCRC: crc.Castagnoli(0, f.Bytes),
	}
}

func nanoseconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

// returnFrame returns a frame to the queue: as delivered if err is nil, because the device has read it, and otherwise
// as dropped, because the device will not read it any more.
func (o *FPGAOutput) returnFrame(slot int, err error) {
	o.mu.Lock()
	f := o.out[slot]
	delete(o.out, slot)
	if o.given++; err == nil {
		o.sentOK++
	}
	o.mu.Unlock()
	switch {
	case f == nil:
	case err != nil:
		o.queue.Fail(f, pipeline.DropSink, nil) // the recovery logs the fault
	default:
		o.queue.Done(f)
	}
}

// serve keeps the engine running until ctx ends, or until recovery has been fruitless for too long.
func (o *FPGAOutput) serve(ctx context.Context) error {
	var faults pipeline.FaultLog
	r := newRecovery(giveUp)
	err := r.Run(ctx, func(ctx context.Context) (pipeline.Outcome, error) {
		if r.Attempts > 0 {
			if err := o.repin(ctx); err != nil {
				return pipeline.Fruitless, fmt.Errorf("output cannot continue yet: %w", err) // the engine would read memory that was revoked
			}
		}
		before := o.good()
		err := o.attempt(ctx)
		return outcomeOf(o.good() - before), err
	}, func(_ context.Context, fault error) (atOnce bool) {
		if left, due := faults.Due("", time.Now()); due {
			o.cfg.Logger.Warn("output restarts its engine", pipeline.Unlogged([]any{"output", o.cfg.Name, "fault", fault}, left)...)
		}
		return false
	})
	if errors.Is(err, pipeline.ErrGivenUp) {
		return fmt.Errorf("output %s: %w", o.cfg.Name, err)
	}
	return except(err, context.Canceled)
}

// good returns the number of frames that the device has read.
func (o *FPGAOutput) good() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sentOK
}

// stuckAfter limits the time that the device may take for a frame before the engine is restarted. A card that accepts
// no data for this long cannot be distinguished from a stuck engine.
const stuckAfter = time.Second

// attempt runs the engine until it fails, a pin is revoked, ctx ends, or the device has held frames without returning
// one for too long.
func (o *FPGAOutput) attempt(ctx context.Context) error {
	run, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(stuckAfter / 2)
		defer tick.Stop()
		stuck, seen := 0, uint64(0)
		for stuck < 2 {
			select {
			case <-run.Done():
				return
			case <-o.revoked:
				stop(fmt.Errorf("output slot: %w", tegra.ErrRevoked))
				return
			case <-tick.C:
			}
			o.mu.Lock()
			if len(o.out) == 0 || o.given != seen {
				stuck = 0
			} else {
				stuck++
			}
			seen = o.given
			o.mu.Unlock()
		}
		stop(ErrStuck)
	}()
	err := o.ring.Run(run)
	stop(nil)
	<-watched // ends: stop has ended run
	if cause := context.Cause(run); ctx.Err() == nil && !errors.Is(cause, context.Canceled) {
		err = both(cause, err)
	}
	return err
}

// Close closes the ring, unpins the slots, and drops the frames that the engine still holds. The engine must not be
// running. A second Close does nothing.
func (o *FPGAOutput) Close() error {
	o.mu.Lock()
	closed := o.done
	o.done = true
	o.mu.Unlock()
	if closed {
		return nil
	}
	err := o.ring.Close() // it may still return slots
	if errors.Is(err, xdma.ErrBusy) {
		err = errors.Join(err, o.cfg.Card.abandon(fpga.H2C, o.cfg.Channel), o.ring.Abandon())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	errs := []error{err}
	for _, s := range o.slots {
		errs = append(errs, except(s.pin.Unpin(), tegra.ErrRevoked))
	}
	o.cfg.Card.stopped(o)
	for slot, f := range o.out { // left by an engine that did not stop; it cannot read them any more, because they are unpinned
		delete(o.out, slot)
		o.queue.Fail(f, pipeline.DropSink, nil) // err is reported by Close
	}
	return errors.Join(errs...)
}

// except returns err, or nil if err wraps the error that is passed as only.
func except(err, only error) error {
	if errors.Is(err, only) {
		return nil
	}
	return err
}
