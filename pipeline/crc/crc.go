// SPDX-License-Identifier: Apache-2.0

// Package crc computes the checksums of frames. Package hash/crc32 waits for memory that no cache holds, as that of a frame which the DMA
// has written. Here x86-64 fetches memory ahead (docs/results.md, "Checksums"). Other processors use hash/crc32.
package crc

import (
	"encoding/binary"
	"hash/crc32"
)

// A block is what one step folds.
type block [64]byte

// A polynomial is that of a CRC-32, and what the halves of each word of a block are multiplied by when the next block is added:
// x^544 and x^480 modulo the polynomial, in the CRC's order of bits (Gopal and others, "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", Intel 2009).
type polynomial struct {
	table     *crc32.Table
	low, high uint64
}

var (
	ieee       = polynomial{crc32.IEEETable, 0x1_5444_2bd4, 0x1_c6e4_1596}
	castagnoli = polynomial{crc32.MakeTable(crc32.Castagnoli), 0x740e_ef02, 0x9e4a_ddf8}
)

// IEEE adds b to a CRC-32, as crc32.Update does. The CRC of nothing is 0.
func IEEE(crc uint32, b []byte) uint32 { return ieee.update(crc, b) }

// Castagnoli adds b to a CRC-32C, as crc32.Update does. The CRC of nothing is 0.
func Castagnoli(crc uint32, b []byte) uint32 { return castagnoli.update(crc, b) }

// short is how many bytes are left to hash/crc32: a cache's own fetching is good enough for them.
const short = 16 << 10

func (p *polynomial) update(crc uint32, b []byte) uint32 {
	if !folds || len(b) < short {
		return crc32.Update(crc, p.table, b)
	}
	// The register of a CRC is inverted between calls. It is added to the first bytes, and the message begins with a register of 0.
	rest := block(b)
	binary.LittleEndian.PutUint32(rest[:], binary.LittleEndian.Uint32(rest[:])^^crc)
	blocks := len(b)/len(rest) - 1
	fold(&rest, p.low, p.high, &b[len(rest)], blocks)
	register := uint32(0)
	for _, v := range rest { // to crc32.Update it would go by the heap
		register = p.table[byte(register)^v] ^ register>>8
	}
	return crc32.Update(^register, p.table, b[(blocks+1)*len(rest):])
}
