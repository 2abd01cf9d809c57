// SPDX-License-Identifier: Apache-2.0

// Package crc computes the checksums of frames. Package hash/crc32 spends much of its time waiting for memory that is
// in no cache, such as a frame just written by DMA. This package fetches the memory of long data ahead. On x86-64 it
// folds by PCLMULQDQ, and on arm64 it computes three parts at once, by CRC32 and PMULL (docs/results.md, "Checksums");
// otherwise it uses hash/crc32.
package crc

import "hash/crc32"

// A polynomial describes a CRC-32. low and high are the factors for the halves of each 16-byte word of a block of 64
// bytes when the next block is added: x^544 and x^480 modulo the polynomial, in the CRC's bit order (Gopal and others,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).
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

func (p *polynomial) update(crc uint32, b []byte) uint32 {
	if fast && len(b) >= short {
		crc, b = p.most(crc, b)
	}
	return crc32.Update(crc, p.table, b)
}
