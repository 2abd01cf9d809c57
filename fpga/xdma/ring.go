// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// lateTicks is how many ticks of the watchdog a write-back may be late.
const lateTicks = 20

// RingConfig describes the frames of a C2H stream.
type RingConfig struct {
	Channel int
	Slots   []fpga.Memory // a frame's pixels each, of equal size; mapped for the device until Close; at least two
	// Frame is the number of pixel bytes of a bare stream's frame; 0: as many as a slot has. A slot must have room for a
	// multiple of 64 bytes, as a descriptor has (PG195, Length Granularity). A packet that is too long may be written there.
	Frame int
	// Trailer is how many bytes follow the pixels in each packet; they get a descriptor of their own. 0 is a bare stream:
	// its packets are frames and nothing else, and the design goes on with the packet that it has begun when it is stopped
	// and started. So what comes after Start is thrown away up to the end of a packet.
	Trailer int
	// Slice, if not 0, is a number of bytes, a multiple of 64: Next returns each time so many more of a frame
	// have come. A descriptor ends at each multiple of it, and announces that.
	Slice int
	// Unblock is called, if not nil, when the engine does not stop because it waits for the rest of a packet: it makes
	// the design end the packet.
	Unblock func()
}

// A Ring receives one stream packet per frame, each into a slot that was freed for it: a descriptor credit is the
// device's lease on the slot, so it never writes a slot that was not freed. Slots may be freed in any order.
//
// A frame is complete when the write-backs of all its descriptors are there and the channel's counter of completed
// descriptors, a register, confirms it. So a stale write-back (of an earlier frame, delayed) is not taken for the
// frame's; a late or wrong one is given time to be replaced. Reading the register also makes sure that the frame's bytes have arrived: the answer
// to a read does not overtake the writes before it (PCI Express, producer and consumer ordering).
//
// Frames have a fixed length. When a packet is shorter or longer, Next returns ErrStream; Stop and Start realign
// the stream: a design that sends trailers drops what it has begun while Run is 0, and a bare stream is searched for the
// end of a packet.
type Ring struct {
	*feed
	unblock func()
	tail    int       // bytes that come with it
	told    progress  // of the oldest frame, by Next
	late    time.Time // since when the oldest frame's write-backs have been missing or wrong; zero: they are not
}

// A Completion is a slot that the device has filled, or, with RingConfig.Slice, has begun to fill.
type Completion struct {
	Slot    int
	Done    bool   // the frame is complete; else its first Filled bytes are there, and more of it comes next
	Filled  int    // bytes of pixels
	Trailer []byte // of a complete frame, valid until the slot is freed; nil of a bare stream
}

// NewRing lays out the descriptors of all slots.
func (d *Device) NewRing(cfg RingConfig) (*Ring, error) {
	c, err := d.channel(fpga.C2H, cfg.Channel, true)
	if err != nil {
		return nil, err
	}
	if len(cfg.Slots) < 2 {
		return nil, c.errorf(ErrMemory, "a ring needs two slots, not %d", len(cfg.Slots))
	}
	// More positions than slots: the next one is always empty, and a write-back is not used again soon.
	r := &Ring{unblock: cfg.Unblock, tail: cfg.Trailer}
	r.told.slice = cfg.Slice
	if cfg.Slice%c2hGranularity != 0 || cfg.Trailer%c2hGranularity != 0 {
		return nil, c.errorf(ErrMemory, "slices have %d bytes and trailers %d: they must be multiples of %d (PG195, Length Granularity)",
			cfg.Slice, cfg.Trailer, c2hGranularity)
	}
	frame, length := cmp.Or(cfg.Frame, cfg.Slots[0].Size()), cfg.Trailer
	if cfg.Trailer == 0 {
		r.tail, length = tailBytes(frame), c2hGranularity
	}
	if r.feed, err = newFeed(c, 2*len(cfg.Slots)+1, length); err != nil {
		return nil, err
	}
	if cfg.Trailer == 0 {
		if r.scrap, err = c.newScrap(); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	for i, m := range cfg.Slots {
		if m.Size() != cfg.Slots[0].Size() {
			err = c.errorf(ErrMemory, "slot %d has %d bytes, slot 0 has %d", i, m.Size(), cfg.Slots[0].Size())
		} else {
			_, err = r.add(m, frame, cfg.Trailer, cfg.Slice)
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// Start gives the device the slots listed, in this order, and runs the engine. Free gives it more.
func (r *Ring) Start(slots []int) error {
	seen := make([]bool, len(r.slots))
	for _, i := range slots {
		if i < 0 || i >= len(r.slots) || seen[i] {
			return r.c.errorf(ErrSlot, "slot %d, listed to start with", i)
		}
		seen[i] = true
	}
	r.late = time.Time{}
	r.told.reset()
	return r.start(slots)
}

// Free gives a slot to the device. It may be called from any goroutine; on a ring that does not run, or when the
// device has the slot already, it has no effect.
func (r *Ring) Free(i int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 0 || i >= len(r.slots) {
		return r.c.errorf(ErrSlot, "slot %d is freed, the ring has %d", i, len(r.slots))
	}
	if r.state != running || r.slots[i].placed {
		return nil
	}
	r.place(i)
	return r.pump()
}

// Next waits for the next frame in the order of the stream, or, with RingConfig.Slice, for the next slice of it. It serves
// the channel; one goroutine calls it. After an error other than ctx's the ring must be stopped.
func (r *Ring) Next(ctx context.Context) (Completion, error) {
	for why := byNothing; ; {
		done, ok, err := r.complete(why)
		if ok || err != nil {
			return done, err
		}
		if !r.late.IsZero() { // nothing will announce that they have come
			if err := r.wait.sleep(ctx, pollMost); err != nil {
				return Completion{}, err
			}
			continue
		}
		hint, err := r.wait.wait(ctx)
		if err != nil {
			return Completion{}, err
		}
		if err := r.look(hint); err != nil {
			return Completion{}, err
		}
		if why = byTick; hint {
			why = byHint
		}
	}
}

// reason is why the memory is looked at.
type reason int

const (
	byNothing reason = iota
	byHint
	byTick
)

// complete takes the oldest frame if it is complete.
func (r *Ring) complete(why reason) (Completion, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != running {
		return Completion{}, false, r.stopped()
	}
	if r.aligning() {
		return Completion{}, false, r.align(why)
	}
	if len(r.frames) == 0 {
		return Completion{}, false, nil
	}
	f := r.frames[0]
	s := r.slots[f.slot]
	length, eop, ok := written(r.writeBack(f.position))
	all, wrong := false, -1
	if ok {
		all, wrong = s.filled()
	}
	if !all {
		if why == byNothing && r.late.IsZero() {
			return Completion{}, false, nil
		}
		lost, err := r.overdue(f.end)
		if err == nil && !lost && r.advance(f, s) {
			return Completion{Slot: f.slot, Filled: r.told.bytes}, true, nil
		}
		if lost {
			err = r.c.errorf(ErrLost, "the descriptors of slot %d are completed, their write-backs have not come within %v", f.slot, r.lateBound())
		}
		return Completion{}, false, err
	}
	done, err := r.done(f.end)
	if !done {
		r.stats.Doubted++
		return Completion{}, false, err
	}
	if wrong >= 0 {
		n, end, _ := written(s.writeBacks[wrong*writeBackSize:])
		return Completion{}, false, r.misfit(f.slot, wrong, n, end, s.lengths[wrong])
	}
	if !eop || int(length) != r.tail {
		return Completion{}, false, r.misfit(f.slot, s.chain.n, length, eop, uint32(r.tail))
	}
	r.take()
	r.told.reset()
	r.late = time.Time{}
	if why == byTick {
		r.stats.Missed++
	}
	return Completion{Slot: f.slot, Done: true, Filled: s.bytes(), Trailer: s.trailer}, true, nil
}

// overdue looks, when something has been announced, whether descriptors are completed although their write-backs are not
// there; lost: and have not come for too long.
func (r *Ring) overdue(end uint32) (lost bool, err error) {
	done, err := r.done(end)
	switch {
	case !done:
		return false, err
	case r.late.IsZero():
		r.stats.Late++
		r.late = time.Now()
	case time.Since(r.late) > r.lateBound():
		return true, nil
	}
	return false, nil
}

func (r *Ring) lateBound() time.Duration { return lateTicks * r.c.dev.cfg.Watchdog }

// misfit is the error of a write-back that does not show what a frame's does, when it still does not after a tick of the
// watchdog: it may be an earlier one, with the right one on its way.
func (r *Ring) misfit(slot, descriptor int, length uint32, eop bool, want uint32) error {
	switch {
	case r.late.IsZero():
		r.stats.Doubted++
		r.late = time.Now()
		return nil
	case time.Since(r.late) < r.c.dev.cfg.Watchdog:
		return nil
	}
	last := descriptor == r.slots[slot].chain.n
	return r.c.errorf(ErrStream, "descriptor %d of slot %d got %d bytes, end of packet %t, and should have %d and %t: "+
		"the packet is not as long as the frame", descriptor, slot, length, eop, want, last)
}

// Stop stops the engine and waits until it has let go of all slots; until it has returned nil or ErrGone they must stay
// mapped. After ErrBusy it may be called again.
func (r *Ring) Stop() error {
	if err := r.stop(r.unblock); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Pending reports whether the device has completed a frame that Next has not returned yet. What is wrong with the ring Next returns.
func (r *Ring) Pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != running || r.aligning() || len(r.frames) == 0 {
		return false
	}
	done, err := r.done(r.frames[0].end)
	return done && err == nil
}

// Counters are the channel's performance counters since Start.
func (r *Ring) Counters() (Counters, error) { return r.c.counters() }

// Close frees descriptors and write-backs. The ring must be stopped.
func (r *Ring) Close() error { return r.close() }
