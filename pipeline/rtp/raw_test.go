// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"testing"

	pion "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// rfc4175 reassembles a picture from packets in order, according to RFC 4175 §4, and checks all header fields.
func rfc4175(t *testing.T, wire [][]byte, start Start, first uint32, timestamp uint32, pixel pipeline.PixelFormat, w, h int) []byte {
	t.Helper()
	// pixel groups, RFC 4175 §4.3: table of pgroup size and coverage
	group := map[pipeline.PixelFormat][2]int{pipeline.UYVY: {4, 2}, pipeline.UYVP: {5, 2}, pipeline.RGB24: {3, 1}}[pixel]
	size, pixels := group[0], group[1]
	row := w / pixels * size
	picture, got := make([]byte, row*h), 0
	for i, b := range wire {
		var p pion.Packet
		if err := p.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		if p.Version != 2 || p.Padding || p.Extension || len(p.CSRC) != 0 || p.PayloadType != 96 || p.SSRC != start.SSRC {
			t.Fatalf("packet %d: header %v", i, p.Header)
		}
		if p.Marker != (i == len(wire)-1) || p.Timestamp != timestamp {
			t.Fatalf("packet %d of %d: marker %v, timestamp %d, want %d", i, len(wire), p.Marker, p.Timestamp, timestamp)
		}
		ext := uint32(binary.BigEndian.Uint16(p.Payload))<<16 | uint32(p.SequenceNumber)
		if ext != first+uint32(i) {
			t.Fatalf("packet %d: extended sequence %#x, want %#x", i, ext, first+uint32(i))
		}
		headers := p.Payload[2:]
		length, line, off := binary.BigEndian.Uint16(headers), binary.BigEndian.Uint16(headers[2:]), binary.BigEndian.Uint16(headers[4:])
		if line>>15 != 0 || off>>15 != 0 {
			t.Fatalf("packet %d: field or continuation bit set", i)
		}
		data := headers[6:]
		if int(length) != len(data) || int(length)%size != 0 || int(off)%pixels != 0 {
			t.Fatalf("packet %d: length %d of %d bytes, offset %d", i, length, len(data), off)
		}
		got += copy(picture[row*int(line)+int(off)/pixels*size:], data)
	}
	if got != len(picture) {
		t.Fatalf("%d bytes of %d", got, len(picture))
	}
	return picture
}

func TestRawPacketsByTheRFC(t *testing.T) {
	for _, tt := range []struct {
		pixel                      pipeline.PixelFormat
		width, height, stride, mtu int
		perLine, size, last        int
	}{
		{pipeline.UYVY, 1920, 4, 3840, 0, 3, 1280, 1280},
		{pipeline.UYVY, 1280, 6, 2560, 0, 2, 1280, 1280},
		{pipeline.UYVY, 1936, 4, 4096, 0, 3, 1292, 1288}, // 968 pixel groups in three packets: 323, 323, 322
		{pipeline.UYVY, 3840, 2, 7680, 0, 6, 1280, 1280},
		{pipeline.UYVY, 3840, 2, 7680, 9000, 1, 7680, 7680},
		{pipeline.UYVY, 320, 240, 640, 0, 1, 640, 640},
		{pipeline.UYVY, 2, 2, 32, 576, 1, 4, 4},
		{pipeline.UYVY, 714, 3, 1428, 0, 1, 1428, 1428},
		{pipeline.UYVY, 718, 3, 1436, 0, 2, 720, 716},
		{pipeline.UYVP, 1920, 4, 4800, 0, 4, 1200, 1200},
		{pipeline.UYVP, 1280, 4, 3200, 0, 3, 1070, 1060}, // 640 pixel groups in three packets: 214, 214, 212
		{pipeline.UYVP, 2, 3, 64, 0, 1, 5, 5},
		{pipeline.RGB24, 1920, 4, 5760, 0, 5, 1152, 1152}, // four packets would need 1440 bytes each, but the path has room for 1432
		{pipeline.RGB24, 3, 3, 16, 0, 1, 9, 9},
	} {
		t.Run(fmt.Sprintf("%v %dx%d mtu %d", tt.pixel, tt.width, tt.height, tt.mtu), func(t *testing.T) {
			f := rtptest.Format(t, tt.pixel, tt.width, tt.height, 30)
			f.Stride = tt.stride
			s := testPacking(t, Stream{Start: testStart(), MTU: tt.mtu, Checksum: true}, f)
			next := testStart().Sequence
			for n := range 3 {
				frame := rtptest.Frame(f, n)
				wire := packets(t, s, frame)
				if len(wire) != tt.perLine*tt.height {
					t.Fatalf("%d packets, want %d", len(wire), tt.perLine*tt.height)
				}
				for i, b := range wire {
					want := 20 + tt.size
					if i%tt.perLine == tt.perLine-1 {
						want = 20 + tt.last
					}
					if mtu := max(tt.mtu, 576); tt.mtu == 0 && len(b)+48 > 1500 || tt.mtu != 0 && len(b)+48 > mtu || len(b) != want {
						t.Fatalf("packet %d has %d bytes, want %d", i, len(b), want)
					}
				}
				at := frame.Times.ExposureStart
				stamp := testStart().Timestamp + uint32((at.Unix()%(1<<32)*90000+int64(at.Nanosecond())*9/100000)%(1<<32))
				got := rfc4175(t, wire, *testStart(), next, stamp, tt.pixel, tt.width, tt.height)
				if !bytes.Equal(got, rtptest.Lines(frame)) {
					t.Fatalf("frame %d: picture differs", n)
				}
				if crc := crc32.Checksum(got, crc32.MakeTable(crc32.Castagnoli)); s.train.info.crc != crc {
					t.Fatalf("frame %d: CRC %#x, want %#x", n, s.train.info.crc, crc)
				}
				next += uint32(len(wire))
			}
		})
	}
}

func TestRawRefusesAShortFrame(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 30)
	s := testPacking(t, Stream{}, f)
	frame := rtptest.Frame(f, 0)
	frame.Bytes = frame.Bytes[:len(frame.Bytes)-1]
	if err := s.Packetize(s.train, frame); !errors.Is(err, ErrFormat) {
		t.Fatal(err)
	}
}

// The pixels are read only when the checksum is requested, not by Packetize.
func TestPacketizeReadsNoPixels(t *testing.T) {
	plain := rtptest.Format(t, pipeline.UYVY, 320, 240, 30)
	ready, _ := Stream{}.PacketReady(plain)
	for name, f := range map[string]pipeline.Format{"gather": plain, "packet-ready": ready} {
		s := testPacking(t, Stream{Checksum: true}, f)
		frame := rtptest.Frame(plain, 0)
		if f.PacketPitch > 0 {
			frame = rtptest.PackReady(frame, f)
		}
		if err := s.Packetize(s.train, frame); err != nil {
			t.Fatal(err)
		}
		later := frame.Bytes[f.HeaderGap:][:100]
		for i := range later {
			later[i] = ^later[i]
		}
		var summing sync.WaitGroup
		summing.Go(s.train.Sum) // concurrently with a sender
		var pixels []byte
		for i := range s.train.Len() {
			_, p := s.train.Packet(i)
			pixels = append(pixels, p...)
		}
		summing.Wait()
		if got := s.train.Checksum().CRC; got != CRC(pixels) {
			t.Errorf("%s: CRC %#x, want %#x: the pixels were read by Packetize", name, got, CRC(pixels))
		}
	}
}

func TestPacketizeAllocatesNothing(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 640, 480, 30)
	s := testPacking(t, Stream{Checksum: true}, f)
	frame := rtptest.Frame(f, 0)
	if n := testing.AllocsPerRun(20, func() {
		if err := s.Packetize(s.train, frame); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations a frame", n)
	}
}
