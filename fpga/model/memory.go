// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"

	"github.com/tegracast/tegracast/fpga"
)

// pieceBytes is the maximum number of bytes that a memory-mapped channel moves in one piece.
const pieceBytes = 64 << 10

// copyCard moves the next piece of a memory-mapped channel's descriptor between host and block RAM. With a fixed card
// address, all beats use the same bytes of the block RAM. It always returns true, because it never has to wait.
func (e *engine) copyCard(c *descriptor) bool {
	w, d := &e.work, e.d
	d.mu.Lock()
	fixed := e.control&bitNonInc != 0
	d.mu.Unlock()
	if w.filled == 0 {
		if status := e.badCard(c, fixed); status != 0 {
			if !e.stop(status, false) {
				e.complete(c)
			}
			return true
		}
	}
	n := min(c.length-w.filled, pieceBytes)
	card := e.card(c) + uint64(w.filled)
	if fixed {
		n, card = min(n, BeatBytes), e.card(c)
	}
	n = e.piece(n)
	if !e.movePiece(c, card, n) {
		if !e.stop(hostUnsupported<<shiftReadError, false) {
			e.complete(c)
		}
		return true
	}
	d.mu.Lock()
	if e.stale() {
		d.mu.Unlock()
		return true
	}
	e.perf.count(n)
	d.mu.Unlock()
	w.filled += n
	w.moved += n
	if w.filled == c.length {
		e.complete(c)
	}
	return true
}

func (e *engine) card(c *descriptor) uint64 {
	if e.dir == fpga.H2C {
		return c.dst
	}
	return c.src
}

// badCard returns the Status bits of the error in the descriptor's addresses or length, or 0 if there is none. The card
// addresses must be inside the block RAM. With a fixed card address, addresses and length must be multiples of
// BeatBytes, but that error is returned only if Control enables its logging.
func (e *engine) badCard(c *descriptor, fixed bool) (status uint32) {
	span := c.length
	if fixed {
		span = min(span, BeatBytes)
	}
	card := e.card(c)
	if fixed && (c.src%BeatBytes != 0 || c.dst%BeatBytes != 0 || c.length%BeatBytes != 0) {
		e.d.broken(fmt.Errorf("%v channel %d, %d bytes from %#x to %#x: %w", e.dir, e.channel, c.length, c.src, c.dst, RuleFixedAddress))
		if e.logs(bitAlign) {
			return bitAlign
		}
	}
	switch {
	case e.d.ram.in(card, span):
		return 0
	case e.dir == fpga.H2C:
		return cardDecode << shiftWriteError
	}
	return cardDecode << shiftReadError
}

// movePiece moves n bytes between the host's memory and the block RAM at card. It returns false if the host's memory
// could not be read. Writes to the host are posted: if the bus refuses one, the device does not notice, but the SMMU
// does.
func (e *engine) movePiece(c *descriptor, card uint64, n int) bool {
	if n == 0 {
		return true
	}
	ram, bus := &e.d.ram, e.d.cfg.Bus
	if e.dir == fpga.H2C {
		ram.mu.Lock()
		defer ram.mu.Unlock()
		return bus.Read(e.address(c.src+uint64(e.work.filled)), ram.bytes[card:card+uint64(n)]) == nil
	}
	ram.mu.RLock()
	defer ram.mu.RUnlock()
	_ = bus.Write(e.address(c.dst+uint64(e.work.filled)), ram.bytes[card:card+uint64(n)])
	return true
}
