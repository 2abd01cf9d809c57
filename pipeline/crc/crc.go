// SPDX-License-Identifier: Apache-2.0

// Package crc computes the checksums of frames. Package hash/crc32 spends much of its time waiting for memory that is
// in no cache, such as a frame just written by DMA. On x86-64, this package prefetches the memory of long data
// (docs/results.md, "Checksums"); otherwise it uses hash/crc32.
package crc

import (
	"encoding/binary"
	"hash/crc32"
)

// A block is the amount of data that one step folds.
type block [64]byte

// A polynomial describes a CRC-32. low and high are the factors for the halves of each word of a block when the next
// block is added: x^544 and x^480 modulo the polynomial, in the CRC's bit order (Gopal and others, "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).
type polynomial struct {
	table     *crc32.Table
	low, high uint64
}

var (
	ieee       = polynomial{crc32.IEEETable, 0x1_5444_2bd4, 0x1_c6e4_1596}
	castagnoli = polynomial{crc32.MakeTable(crc32.Castagnoli), 0x740e_ef02, 0x9e4a_ddf8}
)

// IEEE returns the CRC-32 crc updated with b, like crc32.Update. The CRC of no data is 0.
func IEEE(crc uint32, b []byte) uint32 { return ieee.update(crc, b) }

// Castagnoli returns the CRC-32C crc updated with b, like crc32.Update. The CRC of no data is 0.
func Castagnoli(crc uint32, b []byte) uint32 { return castagnoli.update(crc, b) }

// short is the length in bytes below which hash/crc32 is used: the hardware's own prefetching is good enough for it.
const short = 16 << 10

func (p *polynomial) update(crc uint32, b []byte) uint32 {
	if !folds || len(b) < short {
		return crc32.Update(crc, p.table, b)
	}
	// The CRC register is inverted between calls. Adding it to the first bytes lets the computation start with a
	// register of 0.
	rest := block(b)
	binary.LittleEndian.PutUint32(rest[:], binary.LittleEndian.Uint32(rest[:])^^crc)
	blocks := len(b)/len(rest) - 1
	fold(&rest, p.low, p.high, &b[len(rest)], blocks)
	register := uint32(0)
	for _, v := range rest { // not crc32.Update: rest would escape to the heap
		register = p.table[byte(register)^v] ^ register>>8
	}
	return crc32.Update(^register, p.table, b[(blocks+1)*len(rest):])
}
