// SPDX-License-Identifier: Apache-2.0

package crc

import (
	"encoding/binary"

	"golang.org/x/sys/cpu"
)

var fast = cpu.X86.HasPCLMULQDQ

// short is the length in bytes below which hash/crc32 is used: the hardware's own prefetching is good enough for it.
const short = 16 << 10

// A block is the amount of data that one step folds.
type block [64]byte

// most returns crc updated with all whole blocks of b, of which there must be at least two, and the rest of b.
func (p *polynomial) most(crc uint32, b []byte) (uint32, []byte) {
	// The CRC register is inverted between calls. Adding it to the first bytes lets the computation start with a
	// register of 0.
	last := block(b)
	binary.LittleEndian.PutUint32(last[:], binary.LittleEndian.Uint32(last[:])^^crc)
	blocks := len(b)/len(last) - 1
	fold(&last, p.low, p.high, &b[len(last)], blocks)
	register := uint32(0)
	for _, v := range last { // not crc32.Update: last would escape to the heap
		register = p.table[byte(register)^v] ^ register>>8
	}
	return ^register, b[(blocks+1)*len(last):]
}

// fold replaces *to with a block that yields the same CRC as that block followed by the given number of blocks at b, of
// which there must be at least one.
//
//go:noescape
func fold(to *block, low, high uint64, b *byte, blocks int)
