// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"encoding/binary"

	"github.com/tegracast/tegracast/fpga"
)

// Descriptor (32 bytes, little-endian).
const (
	descriptorBytes = 32
	descriptorMagic = 0xad4b
	descStop        = 1 << 0
	descCompleted   = 1 << 1
	descEOP         = 1 << 4
	maxAdjacent     = 64
	fetchBoundary   = 4096 // a block of adjacent descriptors must not cross it
	writeBackMagic  = 0x52b4
)

type descriptor struct {
	breaks         Rule // the rule that it breaks, or ""
	control        uint32
	adjacent       uint32
	length         int
	src, dst, next uint64
}

func parseDescriptor(b []byte) descriptor {
	le := binary.LittleEndian
	w, length := le.Uint32(b), le.Uint32(b[4:])
	c := descriptor{
		control:  w & 0xff,
		adjacent: w >> 8 & 0x3f,
		length:   int(length & maxLength),
		src:      le.Uint64(b[8:]),
		dst:      le.Uint64(b[16:]),
		next:     le.Uint64(b[24:]),
	}
	switch {
	case w>>16 != descriptorMagic:
		c.breaks = RuleMagic
	case w&reservedBits != 0:
		c.breaks = RuleReserved
	case length == 0 || length > maxLength:
		c.breaks = RuleLength
	}
	return c
}

// transferState is the state of the engine's goroutine, and is used only by it.
type transferState struct {
	resets     uint64 // Device.resets already handled
	started    uint64 // rising edges of Run already handled
	queue      [maxAdjacent]descriptor
	head, tail int
	next       uint64 // address of the next block of descriptors
	adjacent   uint32 // number of descriptors after the first in the next block
	filled     int    // number of bytes of the current descriptor that have been moved
	raw        [maxAdjacent * descriptorBytes]byte
	scratch    []byte // for H2C streams

	// Of the current frame or transfer (see FaultID).
	moved    int  // bytes
	index    int  // descriptors completed
	strikeAt int  // value of moved at which the faults happen; -1: never, already happened, or see strikeIn
	strikeIn int  // value of index: faults happen in the middle of this descriptor; -1: none
	reached  bool // moved has reached strikeAt, or descriptor strikeIn has begun
	astray   bool // the next piece goes to a stray address

	last     descriptor // descriptor that a slow stop continues
	lastFrom int        // byte of it at which a slow stop continues
	lastBack [8]byte    // latest stream write-back
}

// drop discards the fetched descriptors.
func (w *transferState) drop() { w.head, w.tail, w.filled = 0, 0, 0 }

func (e *engine) moveData(ctx context.Context) {
	for ctx.Err() == nil {
		if e.step(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		}
	}
}

// step does the next piece of work. It returns false if there is nothing to do before the next kick.
func (e *engine) step(ctx context.Context) bool {
	w := &e.work
	switch e.active() {
	case idle:
		return false
	case lingering:
		e.linger(ctx)
		return true
	}
	if w.head == w.tail {
		return e.fetch()
	}
	c := &w.queue[w.head]
	switch {
	case e.d.faults.on.Load() && e.strike(ctx, c):
		return true
	case c.breaks != "" && w.filled == 0 && e.stopAt(c):
		return true
	case !e.stream:
		return e.copyCard(c)
	case e.dir == fpga.C2H:
		return e.receive(ctx, c)
	}
	return e.send(c)
}

// stopAt stops the engine at a descriptor that breaks a rule. It returns false if the rule is about lengths and Control
// does not enable stopping for it.
func (e *engine) stopAt(c *descriptor) bool {
	switch c.breaks {
	case RuleLength, RuleC2HLength, RuleStreamWidth:
		return e.stop(bitInvalidLength, false)
	}
	return e.stop(bitMagic, true)
}

type activity int

const (
	idle activity = iota
	working
	lingering
)

// active handles resets and the edges of Run, and returns the resulting activity.
func (e *engine) active() activity {
	w := &e.work
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if e.stale() {
		w.resets = e.d.resets
		w.drop()
	}
	if e.d.down.Load() {
		return idle
	}
	if doing, faulty := e.stopFaults(); faulty {
		return doing
	}
	if w.filled > 0 && e.busy {
		return working // the current descriptor is completed first
	}
	if w.started != e.starts {
		e.restart()
	}
	if e.busy && e.control&bitRun == 0 {
		w.drop()
		e.detach()
		e.busy = false
		e.log(bitIdle)
		e.d.updateIRQ()
	}
	if !e.busy {
		return idle
	}
	if e.frames != nil && w.head < w.tail {
		e.frames.beginPacket()
	}
	return working
}

func (e *engine) restart() {
	w := &e.work
	w.started = e.starts
	w.next, w.adjacent = e.first, e.firstAdjacent
	w.drop()
	if e.restarted {
		e.restarted = false
		e.detach()
	}
	if e.busy && !e.framed() && e.frames == nil {
		e.beginUnit(e.starts, 0)
	}
}

// stopFaults makes an engine hang or stop badly. ok reports whether it does.
func (e *engine) stopFaults() (doing activity, ok bool) {
	w := &e.work
	running := e.control&bitRun != 0
	halted := e.busy && (!running || e.restarted)
	switch {
	case e.stuck:
		return idle, true
	case e.hung && !halted:
		return idle, true
	case e.slow > 0 && running && w.started == e.starts: // completed; it will linger when Run falls
		return idle, true
	case e.slow > 0:
		return lingering, true
	case !halted:
		return idle, false
	}
	w.last, w.lastFrom = descriptor{}, 0
	if w.head < w.tail {
		w.last, w.lastFrom = w.queue[w.head], w.filled
	}
	if e.hung {
		e.hung = false
		w.drop()
	}
	return e.stopBadly()
}

// stopBadly makes F3 or F2 happen, if one is armed, on an engine that stops. ok reports whether one happens.
func (e *engine) stopBadly() (doing activity, ok bool) {
	if _, hit := e.fire(F3, "Busy stays set"); hit {
		e.stuck = true
		e.work.drop()
		e.detach()
		return idle, true
	}
	if a, hit := e.fire(F2, "stops slowly"); hit {
		e.slow = a.between(2, 8)
		return lingering, true
	}
	return idle, false
}

// stop logs an error, and stops the engine if Control enables that for the error, or if always is set. It reports
// whether the engine stopped or the device was reset.
func (e *engine) stop(status uint32, always bool) bool {
	d := e.d
	d.mu.Lock()
	if e.stale() {
		d.mu.Unlock()
		return true
	}
	stopped := e.log(status) != 0 || always
	if stopped {
		e.work.drop()
	}
	poll := stopped && e.control&bitPoll != 0
	d.mu.Unlock()
	if !stopped {
		return false
	}
	if poll {
		e.writePoll(0)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !e.stale() {
		e.busy = false
		d.updateIRQ()
	}
	return true
}

// fetch reads the next block of adjacent descriptors; in credit mode, only as many of them as there are credits. It
// returns false if it may read none.
func (e *engine) fetch() bool {
	w, d := &e.work, e.d
	n := int(w.adjacent) + 1
	d.mu.Lock()
	credited := d.common.creditMode&e.commonBit() != 0
	if credited {
		n = min(n, int(e.credits))
	}
	if d.common.halt&e.commonBit() != 0 || n == 0 {
		d.mu.Unlock()
		return false
	}
	if credited {
		e.credits -= uint32(n)
	}
	d.mu.Unlock()

	w.head, w.tail = 0, n
	if w.next%descriptorBytes != 0 {
		w.queue[0] = descriptor{breaks: RuleDescriptorAddress}
		e.checkBlock(w.queue[:1], w.next)
		return true
	}
	whole := min(n, int(fetchBoundary-w.next%fetchBoundary)/descriptorBytes)
	raw := w.raw[:whole*descriptorBytes]
	if d.cfg.Bus.Read(w.next, raw) != nil {
		e.stop(hostUnsupported<<shiftDescError, true)
		return true
	}
	d.mu.Lock()
	void := e.stale() // the memory may belong to somebody else since the reset
	d.mu.Unlock()
	if void {
		w.drop()
		return true
	}
	for i := range n {
		if i < whole {
			w.queue[i] = parseDescriptor(raw[i*descriptorBytes:])
		} else {
			w.queue[i] = descriptor{breaks: RuleBlock} // beyond the boundary nothing sensible comes
		}
	}
	e.checkBlock(w.queue[:n], w.next)
	last := &w.queue[n-1]
	w.next, w.adjacent = last.next, last.adjacent
	return true
}

// complete ends the current descriptor: poll-mode write-back first, then status and interrupt.
func (e *engine) complete(c *descriptor) {
	w, d := &e.work, e.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.stale() {
		return
	}
	w.head, w.filled = w.head+1, 0
	w.index++
	e.completed++
	if c.control&descStop != 0 {
		w.drop()
		e.perf.descriptorStopped(d.clock.Now())
	}
	if c.control&descCompleted != 0 && e.control&bitPoll != 0 && e.control&bitCompleted != 0 {
		var late armed
		if e.due() {
			late, _ = e.fire(F6, "poll write-back late", "poll write-back stale first", "poll write-back out of order")
		}
		d.mu.Unlock()
		e.pollBack(late)
		d.mu.Lock()
	}
	if !e.stale() {
		e.signal(c)
	}
}

// signal sets the Status bits of a completed descriptor, and stops the engine if that has the Stop bit.
func (e *engine) signal(c *descriptor) {
	if c.control&descCompleted != 0 {
		e.log(bitCompleted)
	}
	if c.control&descStop != 0 {
		e.log(bitStopped)
		e.work.last, e.work.lastFrom = *c, 0
		if e.stream {
			e.work.last = descriptor{} // its data are not there to be written again
		}
		e.stopBadly()
		e.busy = false
	}
	e.d.updateIRQ()
}
