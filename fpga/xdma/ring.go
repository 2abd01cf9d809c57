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

// lateTicks is the number of watchdog ticks after which a missing write-back is an error.
const lateTicks = 20

// RingConfig describes the frames of a C2H stream.
type RingConfig struct {
	Channel int
	Slots   []fpga.Memory // pixel memory of one frame each, all of the same size; at least two; must stay mapped for the device until Close
	// Frame is the number of pixel bytes in a frame of a bare stream; 0: the size of a slot. A slot must have room for
	// Frame rounded up to a multiple of 64 bytes, as each descriptor is (PG195, Length Granularity). A packet that is
	// too long may fill all of it.
	Frame int
	// Trailer is the number of bytes that follow the pixels in each packet, a multiple of 64 up to 4096; they get a
	// separate descriptor. 0 means a bare stream: its packets consist of frames only, and when the channel is stopped
	// and started, the design continues with the packet that it has begun. So everything received after Start is
	// discarded up to the end of a packet.
	Trailer int
	// Slice, if not 0, is a number of bytes, a multiple of 64: Next returns whenever this number of further bytes of a
	// frame has arrived. A descriptor ends at each multiple of Slice and announces it.
	Slice int
	// Unblock, if not nil, is called when the engine does not stop because it waits for the rest of a packet. It must
	// make the design end the packet.
	Unblock func()
}

// A Ring receives one stream packet for each frame, into slots freed for this purpose. A descriptor credit gives the
// device a lease on the slot, so it never writes to a slot that was not freed. Slots may be freed in any order.
//
// A frame is complete when the write-backs of all its descriptors are there and the channel's counter of completed
// descriptors, a register, confirms it. So a stale write-back (a delayed one of an earlier frame) is not mistaken for
// the frame's; a late or wrong one is given time to be replaced. Reading the register also makes sure that the frame's
// bytes have arrived, because the reply to a read does not overtake earlier writes (PCI Express, producer and consumer
// ordering).
//
// Frames have a fixed length. If a packet is shorter or longer, Next returns an error that wraps ErrStream; Stop and
// Start realign the stream: a design that sends trailers drops the packet that it has begun while Run is 0, and in a
// bare stream the ring searches for the end of a packet.
type Ring struct {
	*feed
	unblock func()
	tail    int       // number of bytes that must arrive in the last descriptor of a frame
	told    progress  // part of the oldest frame that Next has reported
	late    time.Time // since when the oldest frame's write-backs have been missing or wrong; zero if they are not
}

// A Completion is a slot that the device has filled or, with RingConfig.Slice, has started to fill.
type Completion struct {
	Slot    int
	Done    bool   // the frame is complete; otherwise its first Filled bytes are there, and Next will report the rest
	Filled  int    // bytes of pixels; those of a bare stream's tail, the last 1 to 64 of the frame, do not count
	Trailer []byte // of a complete frame, valid until the slot is freed; nil for a bare stream
}

// NewRing creates a ring and writes the descriptors of all slots. The caller must close the ring.
func (d *Device) NewRing(cfg RingConfig) (*Ring, error) {
	c, err := d.channel(fpga.C2H, cfg.Channel, true)
	if err != nil {
		return nil, err
	}
	if len(cfg.Slots) < 2 {
		return nil, c.errorf(ErrMemory, "a ring needs two slots, not %d", len(cfg.Slots))
	}
	// There are more positions than slots, so that the next one is always empty and a write-back is not reused soon.
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
			_, err = r.addSlot(m, frame, cfg.Trailer, cfg.Slice)
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// Start gives the listed slots to the device, in this order, and starts the engine. Free adds more.
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

// Free gives a slot to the device. It may be called from any goroutine. It has no effect if the ring is not running or
// the device already owns the slot. The error wraps ErrSlot if there is no such slot, or is that of granting credits.
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

// Next waits for the next frame of the stream or, with RingConfig.Slice, for the next slice of it. It also serves the
// channel, so it must be called continuously, by one goroutine. After an error other than ctx's, the ring must be
// stopped.
func (r *Ring) Next(ctx context.Context) (Completion, error) {
	for why := byNothing; ; {
		done, ok, err := r.complete(why)
		if ok || err != nil {
			return done, err
		}
		if !r.late.IsZero() { // nothing will announce their arrival
			if err := r.wait.sleep(ctx, pollMost); err != nil {
				return Completion{}, err
			}
			continue
		}
		hint, err := r.wait.wait(ctx)
		if err != nil {
			return Completion{}, err
		}
		if err := r.serveHint(hint); err != nil {
			return Completion{}, err
		}
		if why = byTick; hint {
			why = byHint
		}
	}
}

// A reason is the reason why memory is checked for completions.
type reason int

const (
	byNothing reason = iota
	byHint
	byTick
)

// complete removes and returns the oldest frame if it is complete, or, with RingConfig.Slice, reports that more of it
// has arrived. The bool is false if it does neither. While aligning returns true, complete only calls align.
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
	r.removeOldest()
	r.told.reset()
	r.late = time.Time{}
	if why == byTick {
		r.stats.Missed++
	}
	return Completion{Slot: f.slot, Done: true, Filled: s.bytes(), Trailer: s.trailer}, true, nil
}

// overdue checks, after an announcement, whether descriptors are completed although their write-backs are missing. It
// returns lost if they have been missing for too long.
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

// misfit handles a write-back that does not match the frame. It returns an error only if this is still the case one
// watchdog tick later: the write-back may be an earlier one, with the correct one still on its way.
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

// Stop stops the engine and waits until it has released all slots; they must stay mapped until Stop has returned nil or
// an error that wraps ErrGone. After an error that wraps ErrBusy, Stop may be called again.
func (r *Ring) Stop() error {
	if err := r.stop(r.unblock); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Pending reports whether the device has completed a frame that Next has not returned yet. Errors of the ring are left
// for Next to return.
func (r *Ring) Pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != running || r.aligning() || len(r.frames) == 0 {
		return false
	}
	done, err := r.done(r.frames[0].end)
	return done && err == nil
}

// Counters returns the channel's performance counters since the latest Start.
func (r *Ring) Counters() (Counters, error) { return r.c.counters() }

// Close frees descriptors and write-backs. The ring must be stopped.
func (r *Ring) Close() error { return r.close() }
