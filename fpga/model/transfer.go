package model

import (
	"context"
	"encoding/binary"

	"tegracast/fpga"
)

// Descriptor (32 bytes, little endian).
const (
	descriptorBytes = 32
	descriptorMagic = 0xad4b
	descStop        = 1 << 0
	descCompleted   = 1 << 1
	descEOP         = 1 << 4
	maxAdjacent     = 64
	fetchBoundary   = 4096 // a block of adjacent descriptors does not cross it
	writeBackMagic  = 0x52b4
)

type descriptor struct {
	valid          bool // magic is right
	control        uint32
	adjacent       uint32
	length         int
	src, dst, next uint64
}

func parseDescriptor(b []byte) descriptor {
	le := binary.LittleEndian
	w := le.Uint32(b)
	return descriptor{
		valid:    w>>16 == descriptorMagic,
		control:  w & 0xff,
		adjacent: w >> 8 & 0x3f,
		length:   int(le.Uint32(b[4:]) & 0xfffffff),
		src:      le.Uint64(b[8:]),
		dst:      le.Uint64(b[16:]),
		next:     le.Uint64(b[24:]),
	}
}

// transferState belongs to the engine's goroutine.
type transferState struct {
	started    uint64 // rising edges of Run that were acted upon
	queue      [maxAdjacent]descriptor
	head, tail int
	next       uint64 // where the next block is
	adjacent   uint32 // descriptors after the first in the next block
	filled     int    // bytes of the current descriptor that are done
	raw        [maxAdjacent * descriptorBytes]byte
	scratch    []byte // H2C stream
	writeBack  [8]byte
}

// run moves data until ctx ends.
func (e *engine) run(ctx context.Context) {
	for ctx.Err() == nil {
		if e.step() {
			continue
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		}
	}
}

// step does the next piece of work. It returns false when there is nothing to do before the next kick.
func (e *engine) step() bool {
	w := &e.work
	if !e.active() {
		return false
	}
	if w.head == w.tail {
		return e.fetch()
	}
	c := &w.queue[w.head]
	switch {
	case !c.valid:
		e.stop(bitMagic, true)
		return true
	case w.filled == 0 && e.badLength(c) && e.stop(bitInvalidLength, false):
		return true
	case !e.stream:
		return e.copyCard(c)
	case e.dir == fpga.C2H:
		return e.receive(c)
	}
	return e.send(c)
}

// badLength: stream descriptors carry whole beats, but for the end of a packet to the card.
func (e *engine) badLength(c *descriptor) bool {
	if c.length == 0 {
		return true
	}
	return e.stream && c.length%BeatBytes != 0 && (e.dir == fpga.C2H || c.control&descEOP == 0)
}

// active acts upon the edges of Run and reports whether the engine has to work.
func (e *engine) active() bool {
	w := &e.work
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if w.filled > 0 && e.busy {
		return true // the current descriptor is completed first
	}
	if w.started != e.starts {
		w.started = e.starts
		w.next, w.adjacent = e.first, e.firstAdjacent
		w.head, w.tail = 0, 0
		if e.restarted {
			e.restarted = false
			e.detach()
		}
	}
	if e.busy && e.control&bitRun == 0 {
		w.head, w.tail = 0, 0
		e.detach()
		e.busy = false
		e.log(bitIdle)
		e.d.updateIRQ()
	}
	return e.busy
}

// stop logs an error and stops the engine when Control says so, or always. It reports whether the engine stopped.
func (e *engine) stop(status uint32, always bool) bool {
	d := e.d
	d.mu.Lock()
	stopped := e.log(status) != 0 || always
	if stopped {
		e.work.head, e.work.tail, e.work.filled = 0, 0, 0
	}
	poll, addr, word := stopped && e.control&bitPoll != 0, e.pollAddr, e.pollWord()
	d.mu.Unlock()
	if !stopped {
		return false
	}
	if poll {
		e.writePoll(addr, word)
	}
	d.mu.Lock()
	e.busy = false
	d.updateIRQ()
	d.mu.Unlock()
	return true
}

// fetch reads the next block of adjacent descriptors, as far as there are credits.
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
		w.queue[0] = descriptor{}
		return true
	}
	whole := min(n, int(fetchBoundary-w.next%fetchBoundary)/descriptorBytes)
	raw := w.raw[:whole*descriptorBytes]
	if d.cfg.Bus.Read(w.next, raw) != nil {
		e.stop(hostUnsupported<<shiftDescError, true)
		return true
	}
	for i := range n {
		if i < whole {
			w.queue[i] = parseDescriptor(raw[i*descriptorBytes:])
		} else {
			w.queue[i] = descriptor{} // beyond the boundary nothing sensible comes
		}
	}
	last := &w.queue[n-1]
	w.next, w.adjacent = last.next, last.adjacent
	return true
}

// complete ends the current descriptor: write-back first, then status and interrupt.
func (e *engine) complete(c *descriptor) {
	w, d := &e.work, e.d
	w.head, w.filled = w.head+1, 0
	stopping := c.control&descStop != 0
	d.mu.Lock()
	e.completed++
	poll := c.control&descCompleted != 0 && e.control&bitPoll != 0 &&
		(!d.cfg.PollNeedsLog || e.control&bitCompleted != 0)
	addr, word := e.pollAddr, e.pollWord()
	if stopping {
		w.head, w.tail = 0, 0
		e.perf.descriptorStopped(d.clock.Now())
	}
	if !poll {
		e.signal(c.control)
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	e.writePoll(addr, word)
	d.mu.Lock()
	e.signal(c.control)
	d.mu.Unlock()
}

// signal sets the Status bits of a completed descriptor.
func (e *engine) signal(control uint32) {
	if control&descCompleted != 0 {
		e.log(bitCompleted)
	}
	if control&descStop != 0 {
		e.log(bitStopped)
		e.busy = false
	}
	e.d.updateIRQ()
}

// writePoll is a posted write: the device does not learn whether it arrived.
func (e *engine) writePoll(addr uint64, word uint32) {
	b := e.work.writeBack[:4]
	binary.LittleEndian.PutUint32(b, word)
	_ = e.d.cfg.Bus.Write(addr, b)
}

// count adds n bytes to the performance counters.
func (e *engine) count(n int) {
	e.d.mu.Lock()
	e.perf.count(n)
	e.d.mu.Unlock()
}
