package xdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"tegracast/fpga"
)

// pumpEvery is how often a long frame interrupts so that the 10-bit credit counter can be topped up: half of it.
const pumpEvery = 512

// RingConfig describes the frames of a C2H stream.
type RingConfig struct {
	Channel int
	Slots   []fpga.Memory // a frame's pixels each, of equal size; mapped for the device until Close; at least two
	Trailer int           // bytes that follow the pixels in each packet; they get a descriptor of their own
}

// A Ring receives one stream packet per frame, each into the slot that it was given credits for: a descriptor
// credit is the device's lease on the slot, so it never writes a slot that was not freed.
//
// Every slot has its descriptors, made once. Slots are armed in the order in which they become free: the last
// descriptor of the slot armed before is linked to the new slot and gets its credit only then. So slots may be freed
// in any order, the engine never runs into one that is held, and of n free slots n-1 can complete.
type Ring struct {
	c     *channel
	slots []*slot
	meta  Coherent // write-backs and trailers
	descs Coherent

	mu      sync.Mutex
	armed   []int // slots given to the device, oldest first: armed[0] fills next
	allowed int   // credits that may be granted
	running bool
}

type slot struct {
	chain     chain
	writeBack []byte // of the last descriptor
	trailer   []byte
	armed     bool
}

// A Completion is a slot that the device has filled.
type Completion struct {
	Slot    int
	Trailer []byte // valid until the slot is freed
}

// NewRing lays out the descriptors of all slots. No slot is armed: call Free for each.
func (d *Device) NewRing(cfg RingConfig) (*Ring, error) {
	c, err := d.channel(fpga.C2H, cfg.Channel, true)
	if err != nil {
		return nil, err
	}
	if len(cfg.Slots) < 2 || cfg.Trailer < 1 || cfg.Trailer > descriptorPage {
		return nil, c.errorf(ErrMemory, "a ring needs two slots and a trailer of 1 to 4096 bytes, not %d and %d", len(cfg.Slots), cfg.Trailer)
	}
	lists := make([][]fpga.Segment, len(cfg.Slots))
	total, pages := 0, 0
	for i, m := range cfg.Slots {
		if m.Size() != cfg.Slots[0].Size() || m.Size() == 0 {
			return nil, c.errorf(ErrMemory, "slot %d has %d bytes, slot 0 has %d", i, m.Size(), cfg.Slots[0].Size())
		}
		lists[i] = pieces(m.Segments)
		total += len(lists[i]) + 1
		pages += roundUp((len(lists[i]) + 1) * descriptorSize)
	}
	r := &Ring{c: c}
	trailers := roundUp(cfg.Trailer) * len(cfg.Slots) // each in a page of its own: no line is shared with write-backs
	if r.descs, err = c.allocate("descriptors", pages); err != nil {
		return nil, err
	}
	if r.meta, err = c.allocate("trailers and write-backs", trailers+total*writeBackSize); err != nil {
		return nil, errors.Join(err, r.descs.Close())
	}
	r.layOut(lists, cfg.Trailer, trailers)
	return r, nil
}

func roundUp(n int) int { return (n + descriptorPage - 1) &^ (descriptorPage - 1) }

// layOut writes every slot's descriptors: the pixels' segments, then the trailer. A C2H stream descriptor's source
// field is the address of its write-back (PG195, C2H stream).
func (r *Ring) layOut(lists [][]fpga.Segment, trailer, writeBacks int) {
	meta := r.meta.Segments[0].Addr
	descs, wb, tr := 0, writeBacks, 0
	for _, segments := range lists {
		segments = append(segments, fpga.Segment{Addr: meta + uint64(tr), Len: trailer})
		parts := make([]part, len(segments))
		for k, s := range segments {
			parts[k] = part{src: meta + uint64(wb), dst: s.Addr, n: s.Len}
			if (k+1)%pumpEvery == 0 || k == len(segments)-1 {
				parts[k].control = descCompleted
			}
			wb += writeBackSize
		}
		r.slots = append(r.slots, &slot{
			chain:     writeChain(r.descs.Bytes[descs:], r.descs.Segments[0].Addr+uint64(descs), parts),
			writeBack: r.meta.Bytes[wb-writeBackSize : wb],
			trailer:   r.meta.Bytes[tr : tr+trailer : tr+trailer],
		})
		descs += roundUp(len(parts) * descriptorSize)
		tr += roundUp(trailer)
	}
}

// Start arms every slot given in slots, in this order, and runs the engine. At least two are needed for the first
// frame to complete.
func (r *Ring) Start(slots []int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return r.c.errorf(ErrStream, "the ring runs already")
	}
	if len(slots) == 0 {
		return r.c.errorf(ErrMemory, "no slot is free to start with")
	}
	r.armed, r.allowed = r.armed[:0], 0
	for _, s := range r.slots {
		s.armed = false
	}
	r.c.dev.regs.Write32(targetSGDMA<<12|regCreditW1S, r.c.common)
	for _, i := range slots {
		r.arm(i)
	}
	first := r.slots[slots[0]].chain
	if err := r.c.start(first.at(0), first.adjacent(0)); err != nil {
		return err
	}
	r.running = true
	return r.pump()
}

// Free gives a slot to the device. It may be called from any goroutine; on a ring that does not run it has no
// effect.
func (r *Ring) Free(i int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running || r.slots[i].armed {
		return nil
	}
	r.arm(i)
	return r.pump()
}

// arm appends slot i to those that the device may fill. Its last descriptor's credit is kept back until it is known
// what comes after it.
func (r *Ring) arm(i int) {
	s := r.slots[i]
	s.armed = true
	clear(s.writeBack)
	clear(s.trailer)
	if n := len(r.armed); n > 0 {
		before := r.slots[r.armed[n-1]].chain
		before.link(before.n-1, s.chain.at(0), s.chain.adjacent(0))
		r.allowed++
	}
	r.armed = append(r.armed, i)
	r.allowed += s.chain.n - 1
}

// pump grants as many of the allowed credits as the counter has room for.
func (r *Ring) pump() error {
	for r.allowed > 0 {
		left := r.c.dev.regs.Read32(r.c.sgdma + regDescCredits)
		if left == gone {
			return r.c.errorf(ErrGone, "while credits were granted")
		}
		n := min(r.allowed, maxCredits-int(left&maxCredits))
		if n == 0 {
			return nil
		}
		r.allowed -= n
		r.c.sgWrite(regDescCredits, uint32(n))
	}
	return nil
}

// Next waits for the next frame in the order of the stream. It serves the channel's interrupt; one goroutine calls it.
func (r *Ring) Next(ctx context.Context) (Completion, error) {
	for {
		if done, ok, err := r.take(); ok || err != nil {
			return done, err
		}
		if _, err := r.c.wait(ctx); err != nil {
			return Completion{}, err
		}
		r.mu.Lock()
		err := r.pump()
		r.mu.Unlock()
		if err != nil {
			return Completion{}, err
		}
	}
}

// take looks at the write-back of the oldest armed slot's last descriptor.
func (r *Ring) take() (Completion, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.armed) == 0 {
		return Completion{}, false, nil
	}
	i := r.armed[0]
	s := r.slots[i]
	head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&s.writeBack[0])))
	if head>>16 != writeBackMagic {
		return Completion{}, false, nil
	}
	length := binary.LittleEndian.Uint32(s.writeBack[4:])
	if head&1 == 0 || int(length) != len(s.trailer) {
		return Completion{}, false, r.c.errorf(ErrStream,
			"the last descriptor of slot %d got %d bytes, end of packet %t, want %d and true: the packet is not as long as the frame",
			i, length, head&1 == 1, len(s.trailer))
	}
	copy(r.armed, r.armed[1:])
	r.armed = r.armed[:len(r.armed)-1]
	s.armed = false
	return Completion{Slot: i, Trailer: s.trailer}, true, nil
}

// Stop stops the engine and waits until it has let go of all slots; until it has returned nil they must stay
// mapped.
func (r *Ring) Stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		return nil
	}
	if err := r.c.stop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	r.running = false
	r.c.dev.regs.Write32(targetSGDMA<<12|regCreditW1C, r.c.common)
	return nil
}

// Close frees descriptors and write-backs. The ring must be stopped.
func (r *Ring) Close() error {
	if r.running {
		return r.c.errorf(ErrBusy, "close of a running ring: stop it first")
	}
	return errors.Join(r.descs.Close(), r.meta.Close())
}
