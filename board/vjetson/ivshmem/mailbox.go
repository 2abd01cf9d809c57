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
)

// The mailbox, at the start of the shared memory: 32-bit words, little endian, one request at a time. The guest writes
// operation, offset and value, then the sequence number, which differs from the one before, and rings the doorbell.
// The card writes the result, then the sequence number of the request that it answers. A request that was left over
// when the card came reads all ones and writes nothing, as with a device that was away.
const (
	magicOff      = 0x00 // Magic, written before the generation
	generationOff = 0x04 // how many times a card has come; 0 is never
	requestOff    = 0x40 // sequence number
	operationOff  = 0x44 // bits 7:0 OpRead or OpWrite, bits 15:8 the BAR
	offsetOff     = 0x48 // byte offset in the BAR
	valueOff      = 0x4c // to write
	responseOff   = 0x80 // sequence number
	resultOff     = 0x84 // what was read

	Magic   = 0x4d434754 // "TGCM"
	OpRead  = 1
	OpWrite = 2

	gone = 0xffffffff
)

// Mailbox is the card's end.
type Mailbox struct {
	bytes []byte
	words []uint32
	bars  [6]fpga.Registers
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
	m.store(magicOff, Magic)
	m.store(generationOff, max(1, m.load(generationOff)+1))
	m.store(resultOff, gone)
	m.store(responseOff, m.load(requestOff))
}

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
		m.answer()
	}
}

// answer serves the request that is there, if there is a new one. What the guest writes is not trusted: an unknown
// operation or BAR reads all ones.
func (m *Mailbox) answer() {
	sequence := m.load(requestOff)
	if sequence == m.load(responseOff) {
		return
	}
	result := uint32(gone)
	op, off := m.load(operationOff), m.load(offsetOff)
	if bar := int(op >> 8 & 0xff); bar < len(m.bars) && m.bars[bar] != nil && op>>16 == 0 {
		switch op & 0xff {
		case OpRead:
			result = m.bars[bar].Read32(off)
		case OpWrite:
			m.bars[bar].Write32(off, m.load(valueOff))
			result = 0
		}
	}
	m.store(resultOff, result)
	m.store(responseOff, sequence)
}

// Raise interrupts the guest with a vector.
func (s *Shared) Raise(vector int) error {
	_, err := s.Vectors[vector].Write(binary.NativeEndian.AppendUint64(nil, 1))
	if err != nil {
		return fmt.Errorf("ivshmem: vector %d: %w", vector, err)
	}
	return nil
}
