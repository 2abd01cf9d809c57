// SPDX-License-Identifier: Apache-2.0

package fpga

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func rg10() FourCC { return NewFourCC([4]byte{'R', 'G', '1', '0'}) }

func sampleTrailer() Trailer {
	return Trailer{
		Sequence: 0x0102030405060708, Start: 1_000_000_007, End: 1_010_000_007,
		Width: 1920, Height: 1080, Stride: 3840, Format: rg10(),
		Bytes: 3840 * 1080, Valid: 3840 * 1080, PixelCRC: 0xcafef00d,
	}
}

func encode(t Trailer) []byte {
	b, _ := t.AppendBinary(nil)
	return b
}

// Compares with bytes written by hand from the table of docs/fpga-interface.md; the last four come from another,
// bitwise CRC-32C.
func TestTrailerBytes(t *testing.T) {
	want := "54434654" + "0100" + "8000" + "0807060504030201" + // magic, version, size, sequence
		"07ca9a3b00000000" + "8760333c00000000" + // start, end
		"80070000" + "38040000" + "000f0000" + "52473130" + // width, height, stride, "RG10"
		"0a000000" + "00000000" + "00483f0000000000" + "00483f0000000000" + // bits, flags, bytes, valid
		"0df0feca" + strings.Repeat("00", 48)
	raw, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	raw = binary.LittleEndian.AppendUint32(raw, crc32c(raw))
	if got := encode(sampleTrailer()); !reflect.DeepEqual(got, raw) {
		t.Errorf("got  %x\nwant %x", got, raw)
	}
}

// crc32c is the reflected Castagnoli polynomial bit by bit (RFC 3720 §B.4).
func crc32c(p []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range p {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	return ^crc
}

func TestPixelCRC(t *testing.T) {
	if got := PixelCRC([]byte("123456789")); got != 0xe3069283 { // the check value of CRC-32C
		t.Errorf("%#x", got)
	}
	if got := PixelCRC(make([]byte, 32)); got != 0x8a9136aa { // RFC 3720 §B.4, 32 bytes of zeros
		t.Errorf("%#x", got)
	}
}

func TestTrailerRoundTrip(t *testing.T) {
	for _, change := range []func(*Trailer){
		func(*Trailer) {},
		func(x *Trailer) { x.Valid, x.Flags = x.Bytes-100, FlagPadded },
		func(x *Trailer) { x.Flags = FlagOverflow | FlagTriggered },
		func(x *Trailer) { x.Stride, x.Bytes, x.Valid = 4096, 4096*1080, 4096*1080 },
		func(x *Trailer) { x.Sequence, x.End = ^uint64(0), ^uint64(0) },
	} {
		want := sampleTrailer()
		change(&want)
		got, err := ParseTrailer(encode(want))
		if err != nil || got != want {
			t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
		}
	}
}

func TestParseTrailerErrors(t *testing.T) {
	patch := func(off int, v byte) func([]byte) []byte {
		return func(b []byte) []byte {
			b[off] = v
			binary.LittleEndian.PutUint32(b[124:], crc32c(b[:124]))
			return b
		}
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		says   string
	}{
		"short":        {func(b []byte) []byte { return b[:127] }, "127 bytes"},
		"empty":        {func([]byte) []byte { return nil }, "0 bytes"},
		"long":         {func(b []byte) []byte { return append(b, 0) }, "129 bytes"},
		"magic":        {patch(0, 0), "out of step"},
		"version":      {patch(4, 2), "version 2"},
		"size":         {patch(6, 64), "length field is 64"},
		"checksum":     {func(b []byte) []byte { b[8]++; return b }, "CRC-32C"},
		"reserved":     {patch(100, 1), "reserved byte 100"},
		"format":       {patch(44, 'X'), "unknown format XG10"},
		"control char": {patch(44, 7), "unknown format ?G10"},
		"bits":         {patch(48, 12), "12 bits a sample, RG10 has 10"},
		"no width":     {func(b []byte) []byte { return patch(33, 0)(patch(32, 0)(b)) }, "0x1080"},
		"height":       {patch(38, 1), "want 1 to 32768"},
		"stride":       {patch(41, 1), "stride 256"},
		"bytes":        {patch(56, 1), "1080 lines of 3840"},
		"valid":        {patch(66, 0xff), "more than the frame's"},
		"padded flag":  {patch(52, 1), "padded flag is true"},
		"no flag":      {patch(65, 0x47), "padded flag is false"},
		"flags":        {patch(55, 0x80), "unknown flags 0x80000000"},
		"times":        {patch(27, 0), "before it starts"},
	} {
		got, err := ParseTrailer(c.change(encode(sampleTrailer())))
		if !errors.Is(err, ErrTrailer) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q (%+v)", name, err, c.says, got)
		}
	}
}

func TestTrailerAllocs(t *testing.T) {
	tr, buf := sampleTrailer(), make([]byte, 0, TrailerSize)
	if n := testing.AllocsPerRun(100, func() {
		b, _ := tr.AppendBinary(buf)
		if _, err := ParseTrailer(b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseTrailer(f *testing.F) {
	f.Add(encode(sampleTrailer()))
	f.Add([]byte{})
	f.Add(make([]byte, TrailerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseTrailer(b)
		if err != nil {
			if !errors.Is(err, ErrTrailer) {
				t.Errorf("%v does not wrap ErrTrailer", err)
			}
			if len(b) != TrailerSize {
				return
			}
			// The fuzzer cannot guess a checksum: insert the correct one and try again.
			b = append([]byte(nil), b...)
			binary.LittleEndian.PutUint32(b[124:], PixelCRC(b[:124]))
			if got, err = ParseTrailer(b); err != nil {
				return
			}
		}
		if again := encode(got); !reflect.DeepEqual(again, b) {
			t.Errorf("accepted %x, which is written %x", b, again)
		}
	})
}

func TestFourCC(t *testing.T) {
	for s, want := range map[string][2]int{
		"RGGB": {8, 1}, "BA81": {8, 1}, "RG10": {10, 2}, "BA10": {10, 2}, "GB12": {12, 2}, "GR14": {14, 2},
		"BYR2": {16, 2}, "Y10 ": {10, 2}, "UYVY": {8, 2}, "YU12": {0, 0}, "\x00\x00\x00\x00": {0, 0},
	} {
		f := NewFourCC([4]byte([]byte(s)))
		if f.Bits() != want[0] || f.SampleBytes() != want[1] {
			t.Errorf("%v: %d bits, %d bytes", f, f.Bits(), f.SampleBytes())
		}
	}
	if rg10() != 0x30314752 { // V4L2_PIX_FMT_SRGGB10
		t.Errorf("RG10 is %#x", uint32(rg10()))
	}
}
