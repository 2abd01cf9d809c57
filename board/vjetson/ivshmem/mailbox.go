package ivshmem

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"tegracast/fpga"
	"tegracast/fpga/mailbox"
)

// gone is what is read of a card that is not there.
const gone = 0xffffffff

// Mailbox is the card's end of fpga/mailbox, at the start of the shared memory.
type Mailbox struct {
	bytes []byte
	words []uint32
	bars  [6]fpga.Registers
	sizes [6]uint32
}

// Open maps the shared memory for a card with these BARs.
func Open(memory *os.File, bars []fpga.BAR) (*Mailbox, error) {
	b, err := unix.Mmap(int(memory.Fd()), 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("ivshmem: mailbox: %w", err)
	}
	m := &Mailbox{bytes: b, words: unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(b)/4)}
	for _, bar := range bars {
		m.bars[bar.Index] = bar.Registers
		m.sizes[bar.Index] = uint32(bar.Size)
	}
	return m, nil
}

// Close unmaps it; Serve must have returned.
func (m *Mailbox) Close() error { return unix.Munmap(m.bytes) }

func (m *Mailbox) load(off int) uint32     { return atomic.LoadUint32(&m.words[off/4]) }
func (m *Mailbox) store(off int, v uint32) { atomic.StoreUint32(&m.words[off/4], v) }

// Announce makes the card known to the guest and answers what was left over, in this order: a guest that gets all ones
// for its request finds the generation changed. It comes before Serve, which would do what was left over.
func (m *Mailbox) Announce() {
	for i, size := range m.sizes {
		m.store(mailbox.SizesOff+4*i, size)
	}
	m.store(mailbox.MagicOff, mailbox.Magic)
	m.store(mailbox.GenerationOff, max(1, m.load(mailbox.GenerationOff)+1))
	for n := range mailbox.Slots {
		slot := slotAt(n)
		m.store(slot+mailbox.ResultOff, gone)
		m.store(slot+mailbox.ResponseOff, m.load(slot+mailbox.RequestOff))
	}
}

func slotAt(n int) int { return mailbox.SlotsOff + n*mailbox.SlotSize }

// Serve answers requests whenever the doorbell rings, until ctx ends or the doorbell fails. It closes the doorbell.
func (m *Mailbox) Serve(ctx context.Context, doorbell *os.File) error {
	stop := context.AfterFunc(ctx, func() { doorbell.Close() })
	defer func() {
		if stop() {
			doorbell.Close()
		}
	}()
	for count := make([]byte, 8); ; {
		if _, err := doorbell.Read(count); err != nil {
			if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return fmt.Errorf("ivshmem: doorbell: %w", err)
		}
		for n := range mailbox.Slots {
			m.answer(slotAt(n))
		}
	}
}

// answer serves a slot's request, if there is a new one. What the guest writes is not trusted: an unknown operation or BAR
// reads all ones.
func (m *Mailbox) answer(slot int) {
	sequence := m.load(slot + mailbox.RequestOff)
	if sequence == m.load(slot+mailbox.ResponseOff) {
		return
	}
	result := uint32(gone)
	op, off := m.load(slot+mailbox.OperationOff), m.load(slot+mailbox.OffsetOff)
	if bar := int(op >> 8 & 0xff); bar < len(m.bars) && m.bars[bar] != nil && op>>16 == 0 {
		switch op & 0xff {
		case mailbox.OpRead:
			result = m.bars[bar].Read32(off)
		case mailbox.OpWrite:
			m.bars[bar].Write32(off, m.load(slot+mailbox.ValueOff))
			result = 0
		}
	}
	m.store(slot+mailbox.ResultOff, result)
	m.store(slot+mailbox.ResponseOff, sequence)
}

// Raise interrupts the guest with a vector.
func (s *Shared) Raise(vector int) error {
	_, err := s.Vectors[vector].Write(binary.NativeEndian.AppendUint64(nil, 1))
	if err != nil {
		return fmt.Errorf("ivshmem: vector %d: %w", vector, err)
	}
	return nil
}
