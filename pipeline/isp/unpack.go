// SPDX-License-Identifier: Apache-2.0

package isp

import "encoding/binary"

// words makes little-endian words of a line's samples of 8 bits or packed; docs/isp.md §1.
func words(dst, src []byte, bits int) {
	switch bits {
	case 8:
		for i, s := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(s))
		}
	case 10:
		for len(src) >= 5 && len(dst) >= 8 {
			low := uint64(src[4])
			v := uint64(src[0])<<2 | uint64(src[1])<<18 | uint64(src[2])<<34 | uint64(src[3])<<50
			v |= low&3 | low>>2&3<<16 | low>>4&3<<32 | low>>6<<48
			binary.LittleEndian.PutUint64(dst, v)
			src, dst = src[5:], dst[8:]
		}
	case 12:
		for len(src) >= 3 && len(dst) >= 4 {
			low := uint32(src[2])
			binary.LittleEndian.PutUint32(dst, uint32(src[0])<<4|uint32(src[1])<<20|low&15|low>>4<<16)
			src, dst = src[3:], dst[4:]
		}
	}
}
