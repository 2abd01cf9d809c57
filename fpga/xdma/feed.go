// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tegracast/tegracast/fpga"
)

// pumpEvery is the interval, in descriptors, at which a long frame announces itself so that the 10-bit credit counter
// can be topped up: half the counter's range.
const pumpEvery = 512

// grantTries limits how often pump writes credits if some do not arrive, and how often settled reads them again.
const grantTries = 3

// feed passes frames to a stream channel, in either direction, and knows when each is done. A descriptor credit gives
// the engine a lease on the memory behind the descriptor: the engine gets a frame's credits when the frame is handed
// over.
//
// The engine walks through positions. Each position has two descriptors, which are written when a frame is placed
// there. The head is a copy of the first descriptor of the slot's pixels and continues in the slot's own list. The
// tail, for the trailer, is where that list ends. A tail always continues at the head of the next position. So all
// descriptors of a frame may be fetched before it is known what follows, slots may come in any order, and the other
// descriptors of a slot are made only once. If packets have no trailer, the tail is for the last pixels.
//
// The head of a position without a frame has no magic number. If an engine goes beyond its last frame, because it
// ignores or miscounts credits, it stops there with magic_stopped and has overwritten nothing.
type feed struct {
	c         *channel
	memory    Coherent // positions, write-backs of their tails, poll-mode write-back
	positions int
	poll      uint64 // bus address of the poll-mode write-back
	wait      waiter
	scrap     *scrap // for a bare stream, otherwise nil

	mu      sync.Mutex // held for a few register accesses, never during a wait
	state   feedState
	stuck   bool // the engine did not stop when stop was last called
	slots   []*slot
	frames  []frame // owned by the engine, oldest first
	next    int     // position of the next frame
	allowed int     // credits that may still be granted
	end     uint32  // descriptors of all frames handed over since base
	granted uint32  // credits granted since base
	reached uint32  // descriptors known to be completed since base
	base    uint32  // counter of completed descriptors at the start (0 in PG195), or when a bare stream was aligned
	failed  error   // error while granting credits, for the goroutine that serves the ring
	stats   Stats
}

type feedState int

const (
	idle feedState = iota
	running
	stopping // also while it is started, and if the channel did not stop
)

// frame is a slot at a position.
type frame struct {
	slot, position int
	end            uint32 // number of completed descriptors at which the frame is done
}

// newFeed makes the descriptors of n positions. tail is the length of their tails in bytes.
func newFeed(c *channel, n, tail int) (*feed, error) {
	if tail < 1 || tail > descriptorPage {
		return nil, c.errorf(ErrMemory, "a trailer has 1 to %d bytes, not %d", descriptorPage, tail)
	}
	writeBacks := roundUp(2 * n * descriptorSize)
	word := writeBacks + n*writeBackSize
	m, err := c.allocate("descriptors", word+writeBackSize)
	if err != nil {
		return nil, err
	}
	f := &feed{c: c, memory: m, positions: n, poll: m.Segments[0].Addr + uint64(word), wait: waiter{c: c}}
	if c.dev.cfg.Poll {
		f.wait.word = (*uint32)(unsafe.Pointer(&m.Bytes[word]))
	}
	for p := range n {
		control := uint32(descriptorMagic | descCompleted)
		if c.dir == fpga.H2C {
			control |= descEOP
		}
		d, le := f.descriptor(2*p+1), binary.LittleEndian
		clear(d)
		le.PutUint32(d[0:], control)
		le.PutUint32(d[4:], uint32(tail))
		le.PutUint64(d[8:], m.Segments[0].Addr+uint64(writeBacks+p*writeBackSize)) // for H2C, place overwrites it
		le.PutUint64(d[24:], f.at(2*((p+1)%n)))
	}
	return f, nil
}

// descriptor returns descriptor i of the positions: 2p is the head and 2p+1 the tail of position p.
func (f *feed) descriptor(i int) []byte {
	return f.memory.Bytes[i*descriptorSize : (i+1)*descriptorSize]
}

// at returns the bus address of descriptor i.
func (f *feed) at(i int) uint64 { return f.memory.Segments[0].Addr + uint64(i*descriptorSize) }

// writeBack returns the write-back of the tail of position p (C2H).
func (f *feed) writeBack(p int) []byte {
	at := roundUp(2*f.positions*descriptorSize) + p*writeBackSize
	return f.memory.Bytes[at : at+writeBackSize]
}

// place puts slot i at the next position and, unless the feed is aligning, allows its credits. The engine cannot be at
// that position, because it has no credit for it. mu must be held.
func (f *feed) place(i int) {
	s, p, le := f.slots[i], f.next, binary.LittleEndian
	s.placed = true
	f.next = (p + 1) % f.positions
	head, tail := f.descriptor(2*p), f.descriptor(2*p+1)
	if f.c.dir == fpga.C2H {
		clear(f.writeBack(p))
		clear(s.writeBacks)
		clear(s.trailer)
		le.PutUint64(tail[16:], s.trailerAddr)
	} else {
		le.PutUint64(tail[8:], s.trailerAddr)
	}
	copy(head[4:], s.chain.bytes[4:descriptorSize])
	magic := le.Uint32(s.chain.bytes)
	if last := s.chain.n - 1; last > 0 {
		s.chain.link(last, f.at(2*p+1), 0)
	} else {
		le.PutUint64(head[24:], f.at(2*p+1))
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&head[0])), magic)
	n := s.chain.n + 1
	f.end += uint32(n)
	if !f.aligning() {
		f.allowed += n
	}
	f.frames = append(f.frames, frame{slot: i, position: p, end: f.end})
}

// removeOldest removes the oldest frame, which is done. mu must be held.
func (f *feed) removeOldest() {
	done := f.frames[0]
	copy(f.frames, f.frames[1:])
	f.frames = f.frames[:len(f.frames)-1]
	f.forget(done.position)
	s := f.slots[done.slot]
	s.placed = false
	f.stats.Frames++
	f.stats.Descriptors += uint64(s.chain.n + 1)
}

// forget invalidates the head descriptor of position p.
func (f *feed) forget(p int) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&f.descriptor(2 * p)[0])), 0)
}

// start starts the engine at position 0, with the given slots. If start fails, the engine has been stopped, unless the
// error wraps ErrBusy.
func (f *feed) start(slots []int) error {
	f.mu.Lock()
	if f.state != idle {
		f.mu.Unlock()
		return f.c.errorf(ErrBusy, "the ring runs already, or could not be stopped")
	}
	if err := f.c.claim(); err != nil {
		f.mu.Unlock()
		return err
	}
	f.state = stopping
	f.mu.Unlock()
	err := f.c.ready()
	f.mu.Lock()
	if err == nil {
		f.reset(slots)
		err = f.startEngine()
	}
	if err == nil {
		f.state = running
		f.stats.Starts++
	}
	f.mu.Unlock()
	if err != nil {
		return errors.Join(err, f.stop(nil))
	}
	return nil
}

// reset clears the state of the previous run and places the given slots. mu must be held.
func (f *feed) reset(slots []int) {
	f.frames, f.next, f.allowed, f.end, f.granted, f.reached = f.frames[:0], 0, 0, 0, 0, 0
	for p := range f.positions {
		f.forget(p)
	}
	for _, s := range f.slots {
		s.placed = false
	}
	if f.scrap != nil {
		f.scrap.reset()
		f.allowed = 1
	}
	for _, i := range slots {
		f.place(i)
	}
	f.wait.clear()
	f.c.clearCounters()
}

func (f *feed) startEngine() error {
	f.c.commonWrite(regCreditW1S)
	first := f.at(0)
	if f.scrap != nil {
		first = f.scrap.addr()
	}
	if err := f.c.start(first, 0, f.poll); err != nil {
		return err
	}
	var err error
	if f.base, err = f.c.completed(); err != nil { // no credits yet, so nothing has been completed
		return err
	}
	return f.pump()
}

// pump grants as many of the allowed credits as the counter has room for. While the engine's fetch is halted, the
// counter must show exactly what was written; lost credits are written again, a few times. mu must be held.
func (f *feed) pump() error {
	f.alignFrame()
	if f.allowed == 0 {
		return nil
	}
	f.c.commonWrite(regHaltW1S)
	defer f.c.commonWrite(regHaltW1C)
	left, err := f.settled()
	for range grantTries {
		n := min(f.allowed, maxCredits-left)
		if err != nil || n == 0 {
			return err
		}
		f.c.sgWrite(regDescCredits, uint32(n))
		after, err := f.c.credits()
		if err != nil {
			return err
		}
		got := after - left
		if got < 0 || got > n {
			return f.c.errorf(ErrCredits, "the counter read %d, %d were granted, and it reads %d", left, n, after)
		}
		f.allowed -= got
		f.granted += uint32(got)
		f.stats.Credits += uint64(got)
		f.stats.CreditsLost += uint64(n - got)
		if got == n {
			return nil
		}
		left = after
	}
	return nil
}

// settled returns the engine's credits. It reads them until they no longer change, at most grantTries more times: a
// fetch that was in progress when fetching was halted still uses some.
func (f *feed) settled() (int, error) {
	before, err := f.c.credits()
	for range grantTries {
		if err != nil {
			break
		}
		var left int
		if left, err = f.c.credits(); left == before {
			return left, err
		}
		before = left
	}
	return before, err
}

// count updates f.reached from the counter of completed descriptors, after checking it against the credits granted. mu
// must be held.
func (f *feed) count() error {
	n, err := f.c.completed()
	n -= f.base // wraps around with the counter
	switch {
	case err != nil:
		return err
	case int32(n-f.reached) < 0:
		if err := f.c.running("descriptors were counted"); err != nil {
			return err
		}
		return f.c.errorf(ErrStream, "the counter of descriptors went from %d back to %d", f.reached, n)
	case int32(n-f.granted) > 0:
		return f.c.errorf(ErrCredits, "%d descriptors were completed, credits for %d were granted", n, f.granted)
	}
	f.reached = n
	return nil
}

// done reports whether the frame whose field end has the given value has been completed. mu must be held.
func (f *feed) done(end uint32) (bool, error) {
	if int32(f.reached-end) >= 0 {
		return true, nil
	}
	err := f.count()
	return err == nil && int32(f.reached-end) >= 0, err
}

// serveHint serves the channel after a hint or a tick.
func (f *feed) serveHint(hint bool) error {
	status, err := f.c.takeStatus()
	f.mu.Lock()
	defer f.mu.Unlock()
	if hint {
		f.stats.Interrupts++
		if status&bitsRaised == 0 && !f.c.dev.cfg.Poll {
			f.stats.Spurious++
		}
	}
	if f.state != running {
		return f.stopped()
	}
	if err != nil {
		return err
	}
	if err := f.pump(); err != nil || hint {
		return err
	}
	if status&bitsRaised != 0 {
		f.c.rearm()
	}
	return f.audit()
}

// audit checks for what nothing announces: a device that has gone or was reset, and credits that do not add up. mu must
// be held.
func (f *feed) audit() error {
	if err := f.c.running("the ring was audited"); err != nil {
		return err
	}
	if err := f.count(); err != nil {
		return err
	}
	left, err := f.c.credits()
	if err == nil && int32(f.granted-f.reached)-int32(left) < 0 {
		return f.c.errorf(ErrCredits, "%d were granted, %d used, and %d are left", f.granted, f.reached, left)
	}
	return err
}

func (f *feed) stopped() error { return f.c.errorf(ErrStopped, "start it first") }

// stuckBound divides the time to wait for an engine that has already failed to stop within the full time: only the
// first stop waits that long.
const stuckBound = 20

// stop stops the engine. It may be called again after an error that wraps ErrBusy.
func (f *feed) stop(unblock func()) error {
	f.mu.Lock()
	if f.state == idle {
		f.mu.Unlock()
		return nil
	}
	f.state = stopping
	bound := stopBound
	if f.stuck {
		bound /= stuckBound
	}
	f.mu.Unlock()
	err := f.c.stop(bound, unblock)
	f.mu.Lock()
	f.stuck = errors.Is(err, ErrBusy)
	f.mu.Unlock()
	if errors.Is(err, ErrBusy) {
		return err
	}
	f.c.commonWrite(regCreditW1C)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == stopping {
		f.state = idle
		f.c.release()
	}
	return err
}

// Stats returns the counters.
func (f *feed) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

func (f *feed) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != idle {
		return f.c.errorf(ErrBusy, "close of a ring that has not been stopped")
	}
	var errs []error
	for _, s := range f.slots {
		errs = append(errs, s.memory.Close())
	}
	f.slots = nil
	return errors.Join(append(errs, f.freeMemory())...)
}

func (f *feed) freeMemory() error {
	if f.scrap == nil {
		return f.memory.Close()
	}
	return errors.Join(f.scrap.memory.Close(), f.memory.Close())
}
