// SPDX-License-Identifier: Apache-2.0

package fpga

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// TrailerSize is the length of the frame trailer in bytes. The trailer is the last part of every frame's stream packet,
// and has the frame's last descriptor to itself.
const TrailerSize = 128

// Values of the trailer's first fields.
const (
	TrailerMagic   = 0x54464354 // "TCFT" in memory
	TrailerVersion = 1
)

// Byte offsets in the trailer; all fields are little-endian (docs/fpga-interface.md, "Frame trailer").
const (
	trailerMagic    = 0   // u32
	trailerVersion  = 4   // u16
	trailerSize     = 6   // u16
	trailerSequence = 8   // u64
	trailerStart    = 16  // u64 ns
	trailerEnd      = 24  // u64 ns
	trailerWidth    = 32  // u32 samples
	trailerHeight   = 36  // u32 lines
	trailerStride   = 40  // u32 bytes
	trailerFormat   = 44  // FourCC
	trailerBits     = 48  // u32
	trailerFlags    = 52  // u32
	trailerBytes    = 56  // u64
	trailerValid    = 64  // u64
	trailerPixelCRC = 72  // u32
	trailerFirst    = 80  // u64 ns
	trailerLast     = 88  // u64 ns
	trailerCRC      = 124 // u32, of bytes 0 to 123
)

// TrailerFlags are conditions that apply to one frame.
type TrailerFlags uint32

const (
	// FlagPadded means that the sensor delivered an incomplete frame, and the FPGA filled the rest with zeros.
	FlagPadded TrailerFlags = 1 << iota
	// FlagOverflow means that samples were lost inside the frame: the picture cannot be trusted.
	FlagOverflow
	// FlagTriggered means that a trigger, not the frame timer, started the exposure.
	FlagTriggered

	knownTrailerFlags = FlagPadded | FlagOverflow | FlagTriggered
)

// A Trailer describes the frame that it follows.
type Trailer struct {
	Sequence uint64 // number of the frame; counts all frames that the sensor completed since start, including dropped ones, from 0
	Start    uint64 // start of the exposure, in ns of the FPGA's timestamp counter
	End      uint64 // end of the exposure, in ns of the FPGA's timestamp counter
	Width    uint32 // samples
	Height   uint32 // lines
	Stride   uint32 // bytes from one line to the next
	Format   FourCC
	Flags    TrailerFlags
	Bytes    uint64 // pixel bytes in the packet: Stride * Height, padding included
	Valid    uint64 // of Bytes, those that the sensor delivered
	PixelCRC uint32 // CRC-32C of the pixel bytes

	// Times when the first and the last line had left the sensor, in ns of the FPGA's timestamp counter; 0 if the
	// design does not report them.
	FirstLine, LastLine uint64
}

// reserved lists the byte ranges of a trailer that must be zero.
var reserved = [][2]int{{trailerPixelCRC + 4, trailerFirst}, {trailerLast + 8, trailerCRC}}

// ErrTrailer is wrapped by every error about a frame trailer.
var ErrTrailer = errors.New("bad frame trailer")

// PixelCRC returns the checksum for Trailer.PixelCRC: CRC-32C (Castagnoli polynomial, RFC 3720 §B.4).
func PixelCRC(pixels []byte) uint32 { return AddPixels(0, pixels) }

// AddPixels returns the PixelCRC of pixels whose beginning has the checksum sum and whose rest is rest.
func AddPixels(sum uint32, rest []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), rest)
}

// AppendBinary appends the TrailerSize bytes of t, including the checksum, to b. The error is always nil.
func (t Trailer) AppendBinary(b []byte) ([]byte, error) {
	var raw [TrailerSize]byte
	le := binary.LittleEndian
	le.PutUint32(raw[trailerMagic:], TrailerMagic)
	le.PutUint16(raw[trailerVersion:], TrailerVersion)
	le.PutUint16(raw[trailerSize:], TrailerSize)
	le.PutUint64(raw[trailerSequence:], t.Sequence)
	le.PutUint64(raw[trailerStart:], t.Start)
	le.PutUint64(raw[trailerEnd:], t.End)
	le.PutUint32(raw[trailerWidth:], t.Width)
	le.PutUint32(raw[trailerHeight:], t.Height)
	le.PutUint32(raw[trailerStride:], t.Stride)
	le.PutUint32(raw[trailerFormat:], uint32(t.Format))
	le.PutUint32(raw[trailerBits:], uint32(t.Format.Bits()))
	le.PutUint32(raw[trailerFlags:], uint32(t.Flags))
	le.PutUint64(raw[trailerBytes:], t.Bytes)
	le.PutUint64(raw[trailerValid:], t.Valid)
	le.PutUint32(raw[trailerPixelCRC:], t.PixelCRC)
	le.PutUint64(raw[trailerFirst:], t.FirstLine)
	le.PutUint64(raw[trailerLast:], t.LastLine)
	b = append(b, raw[:]...)
	tail := b[len(b)-TrailerSize:]
	le.PutUint32(tail[trailerCRC:], PixelCRC(tail[:trailerCRC]))
	return b, nil
}

// ParseTrailer parses a trailer and checks all of it. Every error wraps ErrTrailer. If length, magic, checksum,
// version, size and reserved bytes are right, the trailer is returned even with an error.
func ParseTrailer(b []byte) (Trailer, error) {
	if len(b) != TrailerSize {
		return Trailer{}, fmt.Errorf("%w: %d bytes, want %d", ErrTrailer, len(b), TrailerSize)
	}
	le := binary.LittleEndian
	if m := le.Uint32(b[trailerMagic:]); m != TrailerMagic {
		return Trailer{}, fmt.Errorf("%w: magic %#08x, want %#08x: pixels and trailer are out of step",
			ErrTrailer, m, uint32(TrailerMagic))
	}
	if got, want := le.Uint32(b[trailerCRC:]), PixelCRC(b[:trailerCRC]); got != want {
		return Trailer{}, fmt.Errorf("%w: its CRC-32C is %#08x, the bytes give %#08x", ErrTrailer, got, want)
	}
	if v := le.Uint16(b[trailerVersion:]); v != TrailerVersion {
		return Trailer{}, fmt.Errorf("%w: version %d, this program knows %d: update it or the FPGA",
			ErrTrailer, v, TrailerVersion)
	}
	if n := le.Uint16(b[trailerSize:]); n != TrailerSize {
		return Trailer{}, fmt.Errorf("%w: its length field is %d, want %d", ErrTrailer, n, TrailerSize)
	}
	for _, r := range reserved {
		for i := r[0]; i < r[1]; i++ {
			if b[i] != 0 {
				return Trailer{}, fmt.Errorf("%w: reserved byte %d is %#02x, want 0", ErrTrailer, i, b[i])
			}
		}
	}
	t := Trailer{
		Sequence: le.Uint64(b[trailerSequence:]),
		Start:    le.Uint64(b[trailerStart:]),
		End:      le.Uint64(b[trailerEnd:]),
		Width:    le.Uint32(b[trailerWidth:]),
		Height:   le.Uint32(b[trailerHeight:]),
		Stride:   le.Uint32(b[trailerStride:]),
		Format:   FourCC(le.Uint32(b[trailerFormat:])),
		Flags:    TrailerFlags(le.Uint32(b[trailerFlags:])),
		Bytes:    le.Uint64(b[trailerBytes:]),
		Valid:    le.Uint64(b[trailerValid:]),
		PixelCRC: le.Uint32(b[trailerPixelCRC:]),

		FirstLine: le.Uint64(b[trailerFirst:]), LastLine: le.Uint64(b[trailerLast:]),
	}
	return t, t.check(le.Uint32(b[trailerBits:]))
}

// check returns an error if a field has an invalid value, or if fields contradict each other.
func (t Trailer) check(bits uint32) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: sequence %d: %s", ErrTrailer, t.Sequence, fmt.Sprintf(format, a...))
	}
	switch want := t.Format.Bits(); {
	case want == 0:
		return bad("unknown format %v (%#08x)", t.Format, uint32(t.Format))
	case bits != uint32(want):
		return bad("%d bits a sample, %v has %d", bits, t.Format, want)
	case t.Width == 0 || t.Height == 0 || t.Width > MaxDimension || t.Height > MaxDimension:
		return bad("%dx%d samples, want 1 to %d each way", t.Width, t.Height, MaxDimension)
	case uint64(t.Stride) < uint64(t.Width)*uint64(t.Format.SampleBytes()):
		return bad("stride %d is less than a line's %d samples of %d bytes", t.Stride, t.Width, t.Format.SampleBytes())
	case t.Bytes != uint64(t.Stride)*uint64(t.Height):
		return bad("%d pixel bytes, %d lines of %d give %d", t.Bytes, t.Height, t.Stride, uint64(t.Stride)*uint64(t.Height))
	case t.Valid > t.Bytes:
		return bad("%d bytes from the sensor are more than the frame's %d", t.Valid, t.Bytes)
	case (t.Valid < t.Bytes) != (t.Flags&FlagPadded != 0):
		return bad("%d of %d bytes are from the sensor, but the padded flag is %t",
			t.Valid, t.Bytes, t.Flags&FlagPadded != 0)
	case t.Flags&^knownTrailerFlags != 0:
		return bad("unknown flags %#x", uint32(t.Flags&^knownTrailerFlags))
	case t.LastLine < t.FirstLine:
		return bad("its last line left the sensor at %d ns, before the first one at %d ns", t.LastLine, t.FirstLine)
	case t.End < t.Start:
		return bad("exposure ends at %d ns, before it starts at %d ns", t.End, t.Start)
	}
	return nil
}
