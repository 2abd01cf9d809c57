// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDepth means that a sample has more bits than its format allows.
var ErrDepth = errors.New("a sample has more bits than the sensor's")

// Packed returns the format of the same samples packed without padding as in MIPI CSI-2. Only samples of 10 and 12 bits
// have such a format, and lines with padding cannot be packed without loss; for all others it returns an error that
// wraps ErrFormat.
func (f Format) Packed() (Format, error) {
	s, ok := f.Pixel.Samples()
	if !ok || s.Packed || s.Bits != 10 && s.Bits != 12 {
		return f, fmt.Errorf("%w: %s cannot be packed: only a sensor's samples of 10 or 12 bits in words of 16 can", ErrFormat, f.Pixel)
	}
	if f.Stride != f.Pixel.LineBytes(f.Width) {
		return f, fmt.Errorf("%w: lines of %d bytes with padding cannot be packed without loss", ErrFormat, f.Stride)
	}
	s.Packed = true
	f.Pixel, _ = s.Format()
	f.Stride = f.Pixel.LineBytes(f.Width)
	return f, f.Validate()
}

// Pack packs one line, or several without padding, of s.Bits-bit samples in 16-bit words into the layout of MIPI CSI-2:
// §11.4.4 for RAW10 (the upper bytes of four samples, then a byte with the lower two bits of each), §11.4.5 for RAW12
// (the upper bytes of two samples, then their lower four bits). s.Bits must be 10 or 12, and src a whole number of
// groups. Pack returns an error that wraps ErrDepth if bits are lost.
func (s Samples) Pack(dst, src []byte) error {
	var seen uint64
	if s.Bits == 10 {
		seen = pack10(dst, src)
	} else {
		seen = pack12(dst, src)
	}
	seen |= seen >> 32
	if over := uint16(seen|seen>>16) >> s.Bits; over != 0 {
		return fmt.Errorf("%w %d bits", ErrDepth, s.Bits)
	}
	return nil
}

// group10 packs four samples of 10 bits, one in each 16 bits of w, into 40 bits (MIPI CSI-2 RAW10).
func group10(w uint64) uint64 {
	up := w >> 2 & 0x00ff_00ff_00ff_00ff
	up = (up | up>>8) & 0x0000_ffff_0000_ffff
	up = (up | up>>16) & 0xffff_ffff
	// In the product, the lower bits of sample i end up at bit 48+2i. Its other terms are below these bits, where they
	// do not overlap, or beyond bit 64.
	low := (w & 0x0003_0003_0003_0003) * (1<<48 | 1<<34 | 1<<20 | 1<<6) >> 48 & 0xff
	return up | low<<32
}

// pack10 packs samples of 10 bits, and returns the OR of all samples.
func pack10(dst, src []byte) (seen uint64) {
	le := binary.LittleEndian
	for len(src) >= 32 && len(dst) >= 20 {
		a, b, c, d := le.Uint64(src), le.Uint64(src[8:]), le.Uint64(src[16:]), le.Uint64(src[24:])
		seen |= a | b | c | d
		b, c, d = group10(b), group10(c), group10(d)
		le.PutUint64(dst, group10(a)|b<<40)
		le.PutUint64(dst[8:], b>>24|c<<16|d<<56)
		le.PutUint32(dst[16:], uint32(d>>8))
		src, dst = src[32:], dst[20:]
	}
	for len(src) >= 8 && len(dst) >= 5 {
		a := le.Uint64(src)
		seen |= a
		a = group10(a)
		le.PutUint32(dst, uint32(a))
		dst[4] = byte(a >> 32)
		src, dst = src[8:], dst[5:]
	}
	return seen
}

// groups12 packs two groups of two samples into 48 bits.
func groups12(w uint64) uint64 {
	up := w >> 4 & 0x00ff_00ff_00ff_00ff
	up = (up | up>>8) & 0x0000_ffff_0000_ffff
	up |= w<<16&0x000f_0000_000f_0000 | w<<4&0x00f0_0000_00f0_0000
	return up&0xff_ffff | up>>32<<24
}

// pack12 packs samples of 12 bits, and returns the OR of all samples.
func pack12(dst, src []byte) (seen uint64) {
	le := binary.LittleEndian
	for len(src) >= 32 && len(dst) >= 24 {
		a, b, c, d := le.Uint64(src), le.Uint64(src[8:]), le.Uint64(src[16:]), le.Uint64(src[24:])
		seen |= a | b | c | d
		b, c, d = groups12(b), groups12(c), groups12(d)
		le.PutUint64(dst, groups12(a)|b<<48)
		le.PutUint64(dst[8:], b>>16|c<<32)
		le.PutUint64(dst[16:], c>>32|d<<16)
		src, dst = src[32:], dst[24:]
	}
	for len(src) >= 4 && len(dst) >= 3 {
		a := uint64(le.Uint32(src))
		seen |= a
		a = groups12(a)
		dst[0], dst[1], dst[2] = byte(a), byte(a>>8), byte(a>>16)
		src, dst = src[4:], dst[3:]
	}
	return seen
}

// Unpack is the inverse of Pack. It writes little-endian words.
func (s Samples) Unpack(dst, src []byte) {
	le := binary.LittleEndian
	if s.Bits == 10 {
		for len(src) >= 5 && len(dst) >= 8 {
			low := uint64(src[4])
			v := uint64(src[0])<<2 | uint64(src[1])<<18 | uint64(src[2])<<34 | uint64(src[3])<<50
			v |= low&3 | low>>2&3<<16 | low>>4&3<<32 | low>>6<<48
			le.PutUint64(dst, v)
			src, dst = src[5:], dst[8:]
		}
		return
	}
	for len(src) >= 3 && len(dst) >= 4 {
		low := uint32(src[2])
		le.PutUint32(dst, uint32(src[0])<<4|uint32(src[1])<<20|low&15|low>>4<<16)
		src, dst = src[3:], dst[4:]
	}
}
