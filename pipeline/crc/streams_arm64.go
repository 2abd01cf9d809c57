// SPDX-License-Identifier: Apache-2.0

package crc

import (
	"hash/crc32"

	"golang.org/x/sys/cpu"
)

var fast = cpu.ARM64.HasCRC32 && cpu.ARM64.HasPMULL

const (
	// short is the length in bytes below which hash/crc32 is used: joining three streams takes as long.
	short = 2 * 4 * line
	// line is the number of bytes that the first and the second stream take at a time. The third takes two lines.
	line = 64
	// longest is the number of lines of the first stream after which the three are joined.
	longest = 32
)

// shifts has, at i, the power by which a stream's register is multiplied so that one more step of the CRC makes it the
// register after i+1 lines of zeros: x^(8*64*(i+1)-33) modulo the polynomial, in the CRC's bit order. The product of two
// numbers in this order has a factor of x, and a step one of x^32.
type shifts [3 * longest]uint64

var ieeeShifts, castagnoliShifts = newShifts(ieee.table), newShifts(castagnoli.table)

func newShifts(table *crc32.Table) (s shifts) {
	power := uint32(1) << (31 - 7) // x^7
	zeros := line - 5              // bytes from x^7 to x^(8*64-33)
	for i := range s {
		for range zeros {
			power = table[byte(power)] ^ power>>8
		}
		s[i], zeros = uint64(power), line
	}
	return s
}

// most returns crc updated with most of b, and the rest of b.
func (p *polynomial) most(crc uint32, b []byte) (uint32, []byte) {
	register := ^crc
	for len(b) >= 4*line {
		n := min(len(b)/(4*line), longest)
		if p == &ieee {
			register = ieeeStreams(register, &b[0], n, &[4]uint64{p.low, p.high, ieeeShifts[3*n-1], ieeeShifts[2*n-1]})
		} else {
			register = castagnoliStreams(register, &b[0], n, &[4]uint64{p.low, p.high, castagnoliShifts[3*n-1], castagnoliShifts[2*n-1]})
		}
		b = b[4*n*line:]
	}
	return ^register, b
}

// castagnoliStreams returns the register after 4n lines at b. k has the polynomial's factors for a block, and the powers
// for the first and the second stream: 3n and 2n lines follow them.
//
//go:noescape
func castagnoliStreams(register uint32, b *byte, n int, k *[4]uint64) uint32

//go:noescape
func ieeeStreams(register uint32, b *byte, n int, k *[4]uint64) uint32
