package model

import "tegracast/fpga"

// copyCard does one descriptor of a memory-mapped channel between host and block RAM. Writes to the host are posted:
// when the bus refuses one, the device does not learn of it (the SMMU does).
func (e *engine) copyCard(c *descriptor) bool {
	card := c.src
	if e.dir == fpga.H2C {
		card = c.dst
	}
	e.d.mu.Lock()
	fixed := e.control&bitNonInc != 0
	e.d.mu.Unlock()
	if fixed && (card%BeatBytes != 0 || c.length%BeatBytes != 0) && e.stop(bitAlign, false) {
		return true
	}
	var stopped bool
	if e.dir == fpga.H2C {
		stopped = e.toCard(c, fixed)
	} else {
		stopped = e.fromCard(c, fixed)
	}
	if !stopped {
		e.count(c.length)
		e.complete(c)
	}
	return true
}

// span is how much of the card's address space a descriptor covers: one beat when the address is fixed, where each
// beat overwrites the one before.
func span(c *descriptor, fixed bool) int {
	if fixed {
		return min(c.length, BeatBytes)
	}
	return c.length
}

func (e *engine) toCard(c *descriptor, fixed bool) (stopped bool) {
	ram := &e.d.ram
	n := span(c, fixed)
	if !ram.in(c.dst, n) {
		return e.stop(cardDecode<<shiftWriteError, false)
	}
	ram.mu.Lock()
	defer ram.mu.Unlock()
	for off := 0; off < c.length; off += n {
		k := uint64(min(n, c.length-off))
		if e.d.cfg.Bus.Read(c.src+uint64(off), ram.bytes[c.dst:c.dst+k]) != nil {
			return e.stop(hostUnsupported<<shiftReadError, false)
		}
	}
	return false
}

func (e *engine) fromCard(c *descriptor, fixed bool) (stopped bool) {
	ram := &e.d.ram
	n := span(c, fixed)
	if !ram.in(c.src, n) {
		return e.stop(cardDecode<<shiftReadError, false)
	}
	ram.mu.RLock()
	defer ram.mu.RUnlock()
	for off := 0; off < c.length; off += n {
		k := uint64(min(n, c.length-off))
		_ = e.d.cfg.Bus.Write(c.dst+uint64(off), ram.bytes[c.src:c.src+k])
	}
	return false
}
