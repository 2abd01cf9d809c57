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

// FPGAOutputConfig is an output that sends processed frames to the card.
type FPGAOutputConfig struct {
	Card    *Card
	Channel int             // H2C stream channel
	Format  pipeline.Format // of the frames; one that the frame trailer can name
	Depth   int             // frames that may be with the device at once; 0: 2
	Name    string          // in the log; empty: "fpga"
	GiveUp  time.Duration   // how long recovery may take before Run returns the fault; 0: 30 s
	Logger  *slog.Logger    // nil: slog.Default()
}

// An FPGAOutput is a Sink that sends each frame to the card as one packet of an H2C stream: the pixels, read by DMA from
// the slot where a stage has written them, then the frame trailer of docs/fpga-interface.md. The slots are pinned when the
// output is attached.
type FPGAOutput struct {
	cfg  FPGAOutputConfig
	ring *xdma.SendRing

	revoked chan struct{} // gets a value when a pin was taken away

	mu     sync.Mutex
	slots  map[int]*outSlot        // by the pool's index
	out    map[int]*pipeline.Frame // with the device, by the ring's slot
	given  uint64                  // frames that came back
	sentOK uint64                  // of these, that the device has read
	queue  *pipeline.Queue
	done   bool
}

// outSlot is a slot of the pool as the device knows it.
type outSlot struct {
	memory pipeline.Slot
	pin    *tegra.Pin
	ring   int // its number in the ring
}

// NewFPGAOutput takes the channel.
func NewFPGAOutput(ctx context.Context, cfg FPGAOutputConfig) (*FPGAOutput, error) {
	cfg.Depth = cmp.Or(cfg.Depth, 2)
	cfg.Name = cmp.Or(cfg.Name, "fpga")
	cfg.GiveUp = cmp.Or(cfg.GiveUp, giveUp)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if f := fpga.FourCC(cfg.Format.Pixel); f.Bits() == 0 || cfg.Format.Memory == pipeline.MemoryDevice {
		return nil, fmt.Errorf("%w: output %s: the frame trailer has no name for %s: convert the frames first", ErrHardware, cfg.Name, cfg.Format)
	}
	o := &FPGAOutput{cfg: cfg, revoked: make(chan struct{}, 1), slots: map[int]*outSlot{}, out: map[int]*pipeline.Frame{}}
	device, err := cfg.Card.channel(ctx, o, fpga.H2C, cfg.Channel)
	if err != nil {
		return nil, err
	}
	o.ring, err = device.NewSendRing(xdma.SendConfig{Channel: cfg.Channel, Trailer: fpga.TrailerSize, Depth: cfg.Depth, Done: o.give})
	if err != nil {
		cfg.Card.stopped(o)
		return nil, err
	}
	return o, nil
}

// Needs implements pipeline.Sink. It holds the frames with the device, and the one that waits for room there.
func (o *FPGAOutput) Needs() pipeline.SinkNeeds {
	return pipeline.SinkNeeds{Format: o.cfg.Format, Holds: o.cfg.Depth + 1, UseSlot: o.useSlot}
}

// useSlot pins a slot and makes its descriptors.
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

// pin pins a slot; describe makes its descriptors.
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

// repin pins again what was taken away. The engine has been stopped.
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

// Run implements pipeline.Sink: it sends frames, and starts the engine again after a fault. Frames that were with the
// device then count as dropped.
func (o *FPGAOutput) Run(ctx context.Context, q *pipeline.Queue) error {
	o.queue = q
	engine, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop(o.serve(engine))
	}()
	err := o.feed(engine, q)
	if errors.Is(err, pipeline.ErrDetached) { // what is with the device may still arrive
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

// feed hands frames to the ring.
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
			o.give(slot.ring, err)
		}
	}
}

// describe is the frame's trailer.
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

// give gives a frame back that the device has read, or that it will not read any more.
func (o *FPGAOutput) give(slot int, err error) {
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
		o.queue.Fail(f, pipeline.DropSink, nil) // the recovery tells the log
	default:
		o.queue.Done(f)
	}
}

// serve keeps the engine running until ctx ends, or until it has not worked for too long.
func (o *FPGAOutput) serve(ctx context.Context) error {
	var faults pipeline.FaultLog
	r := newRecovery(o.cfg.GiveUp)
	err := r.Run(ctx, func(ctx context.Context) (pipeline.Outcome, error) {
		if r.Attempts > 0 {
			if err := o.repin(ctx); err != nil {
				return pipeline.Fruitless, fmt.Errorf("output cannot continue yet: %w", err) // the engine would read memory that it has lost
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

// good is how many frames the device has read.
func (o *FPGAOutput) good() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sentOK
}

// stuckAfter is how long the device may take for a frame before the engine is restarted. A card that takes nothing for
// as long looks the same from here.
const stuckAfter = time.Second

// attempt runs the engine until it fails, or until frames are with the device and none comes back.
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

// Close unpins the slots of an output that does not run. A second Close does nothing.
func (o *FPGAOutput) Close() error {
	o.mu.Lock()
	closed := o.done
	o.done = true
	o.mu.Unlock()
	if closed {
		return nil
	}
	err := o.ring.Close() // it may still give slots back
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
	for slot, f := range o.out { // of an engine that did not stop: unpinned, the device cannot read them any more
		delete(o.out, slot)
		o.queue.Fail(f, pipeline.DropSink, nil) // err tells
	}
	return errors.Join(errs...)
}

// except is err, or nil when it wraps only.
func except(err, only error) error {
	if errors.Is(err, only) {
		return nil
	}
	return err
}
