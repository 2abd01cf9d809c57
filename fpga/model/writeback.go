// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/binary"
	"time"
)

// pollBack performs the poll-mode write-back of a completed descriptor, with its fault if late is on.
func (e *engine) pollBack(late armed) {
	if !late.on {
		e.writePoll(0)
		return
	}
	by := late.between(1, 4)
	switch late.variant(3) {
	case writeBackLate:
	case writeBackStale:
		e.writePoll(1)
	case writeBackEarly:
		e.writePoll(0)
		e.writeLater(by/2, func() { e.writePoll(1) })
	}
	e.writeLater(by, func() { e.writePoll(0) })
}

// writePoll writes the completed count, reduced by ago, to host memory. It is a posted write: the device does not learn
// whether it arrived. pollOrder keeps the counts in order when two goroutines write.
func (e *engine) writePoll(ago uint32) {
	e.pollOrder.Lock()
	defer e.pollOrder.Unlock()
	e.d.mu.Lock()
	addr, word := e.pollAddr, e.pollWord(ago)
	e.d.mu.Unlock()
	binary.LittleEndian.PutUint32(e.pollBytes[:], word)
	_ = e.d.cfg.Bus.Write(addr, e.pollBytes[:])
}

// streamBack performs the C2H stream write-back: magic and EOP, then the length, with its fault if late is on.
func (e *engine) streamBack(addr uint64, length int, eop bool, late armed) {
	w := &e.work
	if late.on && late.variant(3) == writeBackStale {
		_ = e.d.cfg.Bus.Write(addr, w.lastBack[:])
	}
	word := uint32(writeBackMagic) << 16
	if eop {
		word |= 1
	}
	binary.LittleEndian.PutUint32(w.lastBack[:], word)
	binary.LittleEndian.PutUint32(w.lastBack[4:], uint32(length))
	if !late.on || late.variant(3) == writeBackEarly {
		_ = e.d.cfg.Bus.Write(addr, w.lastBack[:])
		return
	}
	e.streamBackLater(addr, w.lastBack, late)
}

func (e *engine) streamBackLater(addr uint64, word [8]byte, late armed) {
	e.writeLater(late.between(1, 4), func() { _ = e.d.cfg.Bus.Write(addr, word[:]) })
}

// writeLater performs a write after a delay, and keeps Busy set until the write is done or the device is reset. It does
// nothing if the engine is stale.
func (e *engine) writeLater(by time.Duration, write func()) {
	d := e.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.stale() {
		return
	}
	resets := d.resets
	e.writeBacks++
	d.after(by, func() {
		write()
		d.mu.Lock()
		defer d.mu.Unlock()
		if resets == d.resets {
			e.writeBacks--
		}
	})
}
