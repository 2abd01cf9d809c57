// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	rawPayloadHeader = 2 + 6     // bytes of the extended sequence number and one line header (RFC 4175 §4.2)
	maxRaw           = 1<<15 - 1 // maximum width and height in pixels in the SDP (RFC 4175 §6.1)
)

// rawPacketizer packs frames by RFC 4175. No packet contains parts of two lines, so that all headers have the same
// length and the packets of a frame can have one size.
type rawPacketizer struct {
	headerWriter
	format   pipeline.Format
	group    pipeline.PixelGroup
	line     int // bytes of a line
	headers  int // header bytes of a packet
	checksum bool
	perLine  int  // packets of a line
	ready    bool // the frames are packet-ready
	size     int  // payload bytes of a packet; the last one of a line may be shorter
}

func newRawPacketizer(s Stream, f pipeline.Format) *rawPacketizer {
	p := &rawPacketizer{headerWriter: newHeaderWriter(s), format: f, checksum: s.Checksum}
	p.group, p.line = f.Pixel.Group(), f.Pixel.LineBytes(f.Width)
	p.headers = p.head + rawPayloadHeader
	p.perLine, p.size = cutLine(p.line, s.MTU-ipUDPHeader-p.headers, p.group.Bytes)
	if p.ready = f.PacketPitch > 0; p.ready {
		p.size = f.PacketPitch - f.HeaderGap
		p.perLine = p.line / p.size
	}
	return p
}

// NewTrain implements Packetizer.
func (p *rawPacketizer) NewTrain() (*Train, error) {
	n := p.perLine * p.format.Height
	vectors := 2
	if p.ready {
		vectors = 1
	}
	t, err := newTrain(n, vectors, n*p.headers, 0)
	if err != nil {
		return nil, err
	}
	for i := range n {
		y, off := i/p.perLine, i%p.perLine*p.size
		size := min(p.size, p.line-off)
		h := t.headers[i*p.headers:][:p.headers]
		p.header(h, i == n-1)
		line := h[p.head+2:]
		be.PutUint16(line, uint16(size))
		be.PutUint16(line[2:], uint16(y))                                // the field bit is 0: progressive
		be.PutUint16(line[4:], uint16(off/p.group.Bytes*p.group.Pixels)) // offset in pixels; the continuation bit is 0: no other line header follows
		if p.ready {
			t.iov[i].Len = uint64(p.headers + size)
			continue
		}
		t.iov[2*i] = udp.Vector{Base: udp.Address(h), Len: uint64(p.headers)}
		t.iov[2*i+1].Len = uint64(size)
	}
	if p.checksum {
		t.crc = func(b []byte) uint32 { return p.crc(0, b, 0, p.format.Height) }
	}
	t.count, t.bytes, t.uniform = n, n*p.headers+p.line*p.format.Height, p.line%p.size == 0
	return t, nil
}

// Packetize implements Packetizer.
func (p *rawPacketizer) Packetize(t *Train, f *pipeline.Frame) error {
	if len(f.Bytes) < p.format.Size() {
		return fmt.Errorf("%w: frame %d has %d bytes, its format %d", ErrFormat, f.Sequence, len(f.Bytes), p.format.Size())
	}
	p.claim(t)
	t.payload, t.info = f.Bytes, p.info(f)
	if p.ready {
		p.fillGaps(t, f.Bytes)
	} else {
		p.gather(t, f.Bytes)
	}
	t.info.pixels = p.line * p.format.Height
	return nil
}

// Packets implements Slicer.
func (p *rawPacketizer) Packets(lines int) int { return lines * p.perLine }

// SumLines implements Slicer.
func (p *rawPacketizer) SumLines(t *Train, f *pipeline.Frame, from, to int) {
	if p.checksum {
		t.info.crc = p.crc(t.info.crc, f.Bytes, from, to)
	}
}

// Seal implements Slicer.
func (p *rawPacketizer) Seal(t *Train, f *pipeline.Frame) {
	t.info.complete(f)
	t.info.summed = true
}

// Unsent implements Slicer.
func (p *rawPacketizer) Unsent(n int) { p.next -= uint32(n) }

// stamp writes the header fields that change from frame to frame.
func (p *rawPacketizer) stamp(h []byte, seq uint32, info *trainInfo) {
	p.times(h, uint16(seq), info)
	be.PutUint16(h[p.head:], uint16(seq>>16))
}

// gather completes the headers in the train, and points the train's vectors at the pixels.
func (p *rawPacketizer) gather(t *Train, b []byte) {
	base, seq, h, iov := udp.Address(b), p.next, t.headers, t.iov
	for range p.format.Height {
		at := base
		for range p.perLine {
			p.stamp(h, seq, &t.info)
			iov[1].Base = at
			seq, h, iov, at = seq+1, h[p.headers:], iov[2:], at+uintptr(p.size)
		}
		base += uintptr(p.format.Stride)
	}
	p.next = seq
}

// fillGaps writes the headers into the frame, and points the train's vectors at the packets there.
func (p *rawPacketizer) fillGaps(t *Train, b []byte) {
	const short = rtpHeader + rawPayloadHeader // header length without the extension
	base, seq, h, iov, info := udp.Address(b), p.next, t.headers, t.iov[:t.count], t.info
	pitch, headers, head := p.format.PacketPitch, p.headers, p.head
	for i := range iov {
		gap, from := b[i*pitch:][:headers], h[:headers]
		if head > rtpHeader {
			copy(gap[short:], from[short:])
		}
		to, fixed := gap[:short:short], from[:short:short] // copied in words to avoid a call of memmove
		ne.PutUint64(to, ne.Uint64(fixed))
		ne.PutUint64(to[8:], ne.Uint64(fixed[8:]))
		ne.PutUint32(to[16:], ne.Uint32(fixed[16:]))
		// Written only after the copy, because reading a word right after its parts were written is slow.
		p.times(gap, uint16(seq), &info)
		be.PutUint16(gap[head:], uint16(seq>>16))
		iov[i].Base = base + uintptr(i*pitch)
		seq, h = seq+1, h[headers:]
	}
	p.next = seq
}

// crc continues the CRC-32C sum with lines [from, to) of the frame b, without padding and gaps. It reads no fields that
// NewTrain and Packetize write.
func (p *rawPacketizer) crc(sum uint32, b []byte, from, to int) uint32 {
	if p.ready {
		pitch := p.format.PacketPitch
		for i := from * p.perLine; i < to*p.perLine; i++ {
			sum = crc.Castagnoli(sum, b[i*pitch+p.headers:(i+1)*pitch])
		}
		return sum
	}
	if p.format.Stride == p.line {
		return crc.Castagnoli(sum, b[from*p.line:to*p.line])
	}
	for y := from; y < to; y++ {
		sum = crc.Castagnoli(sum, b[y*p.format.Stride:][:p.line])
	}
	return sum
}
