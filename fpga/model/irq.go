// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/tegracast/tegracast/fpga"
)

const (
	msixVectors  = 32
	vectorMasked = 1 // vector control, bit 0
)

// irqBlock is the IRQ block (0x2000). Requests are levels; a message is sent when one rises.
type irqBlock struct {
	userEnable, channelEnable   uint32
	userRequest, channelRequest uint32 // cause AND enable, as last seen
	userVectors                 [4]uint32
	channelVectors              [2]uint32
}

const (
	irqUserEnable    = 0x04 // also 08 W1S, 0C W1C
	irqChannelEnable = 0x10 // also 14 W1S, 18 W1C
	irqUserRequest   = 0x40
	irqChanRequest   = 0x44
	irqUserPending   = 0x48
	irqChanPending   = 0x4c
	irqUserVector    = 0x80 // to 8C
	irqChanVector    = 0xa0 // to A4
	vectorFields     = 0x1f1f1f1f
)

func (d *Device) readIRQ(off uint32) uint32 {
	b := &d.irq
	switch off {
	case 0:
		return identifier(2, false, 0)
	case irqUserEnable:
		return b.userEnable
	case irqChannelEnable:
		return b.channelEnable
	case irqUserRequest:
		return d.userCause() & b.userEnable
	case irqChanRequest:
		return d.channelCause() & b.channelEnable
	case irqUserPending:
		return d.userCause()
	case irqChanPending:
		return d.channelCause()
	case irqUserVector, irqUserVector + 4, irqUserVector + 8, irqUserVector + 12:
		return b.userVectors[(off-irqUserVector)/4]
	case irqChanVector, irqChanVector + 4:
		return b.channelVectors[(off-irqChanVector)/4]
	}
	return 0
}

func (d *Device) writeIRQ(off, v uint32) {
	b := &d.irq
	switch off {
	case irqUserEnable, irqUserEnable + 4, irqUserEnable + 8:
		b.userEnable = setClear(b.userEnable, off-irqUserEnable, v) & (1<<userInterrupts - 1)
	case irqChannelEnable, irqChannelEnable + 4, irqChannelEnable + 8:
		channels := uint32(1)<<(len(d.h2c)+len(d.c2h)) - 1
		b.channelEnable = setClear(b.channelEnable, off-irqChannelEnable, v) & channels
		for _, e := range d.engines() {
			e.requestStays = e.requestStays && b.channelEnable&e.irqBit() != 0
		}
	case irqUserVector, irqUserVector + 4, irqUserVector + 8, irqUserVector + 12:
		b.userVectors[(off-irqUserVector)/4] = v & vectorFields
	case irqChanVector, irqChanVector + 4:
		b.channelVectors[(off-irqChanVector)/4] = v & vectorFields
	}
	d.updateIRQ()
}

// setClear returns a register's value after v was written at off: 0 is its RW, 4 its W1S and 8 its W1C address.
func setClear(old, off, v uint32) uint32 {
	switch off {
	case 0:
		return v
	case 4:
		return old | v
	}
	return old &^ v
}

func (d *Device) userCause() uint32 {
	var cause uint32
	for i, c := range d.blocks {
		if c.raises() {
			cause |= 1 << i
		}
	}
	return cause
}

func (d *Device) channelCause() uint32 {
	var cause uint32
	for i, e := range d.h2c {
		cause |= e.cause() << i
	}
	for i, e := range d.c2h {
		cause |= e.cause() << (len(d.h2c) + i)
	}
	return cause
}

// updateIRQ sends a message for every request that has risen, except that an MSI vector sends none while another of its
// requests is asserted. It must be called with d.mu held after every change of a cause or an enable bit.
func (d *Device) updateIRQ() {
	b := &d.irq
	user, channel := d.userCause()&b.userEnable, d.channelCause()&b.channelEnable
	high := uint32(0) // MSI vectors whose message has already been sent for another source
	if d.cfg.MSI != 0 {
		high = b.raised(b.userRequest, b.channelRequest)
	}
	for rise := channel &^ b.channelRequest; rise != 0; rise &= rise - 1 {
		i := bits.TrailingZeros32(rise)
		if v := vectorOf(b.channelVectors[:], i); high>>v&1 == 0 {
			d.engineOfBit(i).post(v)
			high |= d.shared(v)
		}
	}
	for rise := user &^ b.userRequest; rise != 0; rise &= rise - 1 {
		if v := vectorOf(b.userVectors[:], bits.TrailingZeros32(rise)); high>>v&1 == 0 {
			d.msix.post(v)
			high |= d.shared(v)
		}
	}
	b.userRequest, b.channelRequest = user, channel
}

// shared returns the bit of an MSI vector, which has one message for all its sources, or 0 for MSI-X.
func (d *Device) shared(vector int) uint32 {
	if d.cfg.MSI == 0 {
		return 0
	}
	return 1 << vector
}

// raised returns the vectors of the given requests, as bits.
func (b *irqBlock) raised(user, channel uint32) (vectors uint32) {
	for ; user != 0; user &= user - 1 {
		vectors |= 1 << vectorOf(b.userVectors[:], bits.TrailingZeros32(user))
	}
	for ; channel != 0; channel &= channel - 1 {
		vectors |= 1 << vectorOf(b.channelVectors[:], bits.TrailingZeros32(channel))
	}
	return vectors
}

// Line returns the level of the device's interrupt line, as used while neither MSI nor MSI-X is enabled: it is asserted
// while any request is, unless the device does not respond on the bus. When it rises, Interrupts delivers a message,
// unless its vector is masked or fault F7 loses or delays it.
func (d *Device) Line() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.absent() && d.irq.userRequest|d.irq.channelRequest != 0
}

// engineOfBit returns the channel of bit i: all H2C, then all C2H.
func (d *Device) engineOfBit(i int) *engine {
	if i < len(d.h2c) {
		return d.h2c[i]
	}
	return d.c2h[i-len(d.h2c)]
}

func (e *engine) irqBit() uint32 {
	if e.dir == fpga.C2H {
		return 1 << (len(e.d.h2c) + e.channel)
	}
	return 1 << e.channel
}

// post sends the channel's message, with its fault if F7 is armed and due.
func (e *engine) post(vector int) {
	m := &e.d.msix
	if !e.due() {
		m.post(vector)
		return
	}
	a, hit := e.fire(F7, "message lost", "message sent twice", "message late", "request stays")
	if !hit {
		m.post(vector)
		return
	}
	later := func() {
		e.d.mu.Lock()
		defer e.d.mu.Unlock()
		m.post(vector)
	}
	switch a.variant(interruptFaults) {
	case interruptLost:
	case interruptTwice:
		m.post(vector)
		e.d.after(a.between(1, 4), later)
	case interruptLate:
		e.d.after(a.between(1, 4), later)
	case interruptStays:
		m.post(vector)
		e.requestStays = true
	}
}

// vectorOf reads field i of vector registers, which hold four 5-bit fields per dword.
func vectorOf(regs []uint32, i int) int { return int(regs[i/4] >> (8 * (i % 4)) & 0x1f) }

// msix is the MSI-X table with its pending bits and the interrupt controller behind it, or the interrupt controller for
// MSI. Initially no vector is masked, as left by an operating system that has enabled MSI-X. Guarded by Device.mu,
// except for count and the channels.
type msix struct {
	count   int // number of vectors
	table   [msixVectors * 4]uint32
	pending uint32
	vectors [msixVectors]chan struct{}
}

func (m *msix) post(vector int) {
	if vector >= m.count {
		return
	}
	if m.table[4*vector+3]&vectorMasked != 0 {
		m.pending |= 1 << vector
		return
	}
	select {
	case m.vectors[vector] <- struct{}{}:
	default: // already raised and not seen yet
	}
}

func (m *msix) writeTable(off, v uint32) {
	m.table[off/4] = v
	vector := int(off / 16)
	if v&vectorMasked == 0 && off%16 == 12 && m.pending>>vector&1 != 0 {
		m.pending &^= 1 << vector
		m.post(vector)
	}
}

// Vectors implements fpga.Interrupts.
func (m *msix) Vectors() int { return m.count }

// Wait implements fpga.Interrupts.
func (m *msix) Wait(ctx context.Context, vector int) error {
	if vector < 0 || vector >= m.count {
		return fmt.Errorf("model: interrupt vector %d, want 0 to %d", vector, m.count-1)
	}
	select {
	case <-m.vectors[vector]:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
