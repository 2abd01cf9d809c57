// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	maxJPEG     = 2040     // pixels: width and height are sent in units of 8, in 8 bits (RFC 2435 §3.1.5)
	maxFragment = 1 << 24  // the fragment offset has 24 bits (RFC 2435 §3.1.2)
	jpegHeader  = 8        // bytes (RFC 2435 §3.1)
	tableHeader = 4 + 2*64 // bytes (RFC 2435 §3.1.8)
	jpegType    = 1        // 4:2:0, no restart markers (RFC 2435 §4.1)
	jpegFile    = 2 << 10  // bytes of room for a file's parts outside the scan: 623 by image/jpeg; libjpeg-turbo requires 2048
	jpegQ       = 255      // quantization tables are sent in every frame (RFC 2435 §4.2)
)

// jpegPacketizer packs I420 frames by RFC 2435. All packets of a frame have the same size except the last.
//
// The width and height in the header are rounded up to multiples of 8. The scan covers them, because an encoder pads to
// whole MCUs of 16 pixels. The SDP contains the exact size (a=framesize, RFC 6064 §4.2.1).
type jpegPacketizer struct {
	headerWriter
	format   pipeline.Format
	checksum bool
	encoder  JPEGEncoder
	parser   *jpegParser
	headers  int // header bytes of a packet
	size     int // maximum bytes of a packet after the RTP and JPEG headers
}

func newJPEGPacketizer(s Stream, f pipeline.Format) *jpegPacketizer {
	p := &jpegPacketizer{headerWriter: newHeaderWriter(s), format: f, checksum: s.Checksum, encoder: s.Encoder, parser: newJPEGParser()}
	if p.encoder == nil {
		p.encoder = NewJPEGEncoder(s.Quality)
	}
	p.headers = p.head + jpegHeader
	p.size = s.MTU - ipUDPHeader - p.headers
	return p
}

// NewTrain implements Packetizer. The room for the encoder is four times the picture in whole MCUs, plus the parts of a
// file outside the scan, but at most maxFragment. A scan exceeds four times the picture only if it is constructed to
// (each coefficient with the longest code, each byte stuffed).
func (p *jpegPacketizer) NewTrain() (*Train, error) {
	mcus := ((p.format.Width + 15) / 16) * ((p.format.Height + 15) / 16)
	room := min(4*mcus*16*16*3/2+jpegFile, maxFragment)
	n := (room+tableHeader)/p.size + 1
	t, err := newTrain(n, 2, tableHeader+n*p.headers, room)
	if err != nil {
		return nil, err
	}
	for i := range n {
		h := t.headers[i*p.headers:][:p.headers]
		if i > 0 {
			h = t.headers[tableHeader+i*p.headers:][:p.headers]
		}
		p.header(h, false)
		copy(h[p.head+4:], []byte{jpegType, jpegQ, byte((p.format.Width + 7) / 8), byte((p.format.Height + 7) / 8)})
		t.iov[2*i] = udp.Vector{Base: udp.Address(h), Len: uint64(p.headers)}
	}
	first := t.headers[p.headers:]
	be.PutUint32(first, 2*64) // reserved byte, precision 0 (8 bits), length
	t.iov[0].Len += tableHeader
	return t, nil
}

// Packetize implements Packetizer. It encodes f and splits the scan into packets.
func (p *jpegPacketizer) Packetize(t *Train, f *pipeline.Frame) error {
	file, err := p.encoder.Encode(t.scratch[:0], f)
	if err != nil {
		return fmt.Errorf("%w: frame %d: %w", ErrJPEG, f.Sequence, err)
	}
	if udp.Address(file) != udp.Address(t.scratch) || len(file) > len(t.scratch) {
		return fmt.Errorf("%w: frame %d: the file outgrew the %d bytes given to the encoder", ErrJPEG, f.Sequence, len(t.scratch))
	}
	img, err := p.parser.parse(file)
	if err != nil {
		return fmt.Errorf("frame %d: %w", f.Sequence, err)
	}
	if img.width != p.format.Width || img.height != p.format.Height {
		return fmt.Errorf("%w: frame %d: the encoder made %dx%d pixels of %dx%d", ErrJPEG, f.Sequence,
			img.width, img.height, p.format.Width, p.format.Height)
	}
	copy(t.headers[p.headers+4:], img.quant[0])
	copy(t.headers[p.headers+4+64:], img.quant[1])
	p.claim(t)
	t.payload, t.info = img.scan, p.info(f)
	t.picture, t.key = file, true
	t.info.pixels = len(img.scan)
	if p.checksum {
		t.info.crc = CRC(img.scan)
	}
	p.cut(t, img.scan)
	return nil
}

// JPEGHeader holds the header fields common to all payloads of a frame (RFC 2435 §3.1). Width and Height are in units
// of 8 pixels.
type JPEGHeader struct{ Type, Q, Width, Height byte }

// A JPEGFragment is a parsed payload of RFC 2435.
type JPEGFragment struct {
	Header JPEGHeader
	Offset int       // offset of Scan in the frame's scan, in bytes
	Tables [2][]byte // quantization tables of luma and chroma, 64 bytes each, if Offset is 0; otherwise nil
	Scan   []byte
}

// ParseJPEG parses a payload of type 1 with in-band quantization tables. ok is false for any other payload, and for one
// that violates RFC 2435. The slices of f share the memory of payload.
func ParseJPEG(payload []byte) (f JPEGFragment, ok bool) {
	if len(payload) < jpegHeader {
		return f, false
	}
	f.Offset = int(be.Uint32(payload) & 0xffffff)
	f.Header, f.Scan = JPEGHeader{payload[4], payload[5], payload[6], payload[7]}, payload[jpegHeader:]
	if f.Header.Type != jpegType || f.Header.Q < 128 || f.Header.Width == 0 || f.Header.Height == 0 {
		return f, false
	}
	if f.Offset == 0 && !f.takeTables() {
		return f, false
	}
	return f, len(f.Scan) > 0 && f.Offset+len(f.Scan) <= maxFragment
}

// takeTables moves the quantization tables from the beginning of Scan to Tables (RFC 2435 §3.1.8). If there is one, as
// from ffmpeg, it is for luma and chroma; more than two are not used. takeTables returns false if there are none, they
// are malformed, or their entries do not have 8 bits.
func (f *JPEGFragment) takeTables() bool {
	if len(f.Scan) < 4 {
		return false
	}
	n := int(be.Uint16(f.Scan[2:]))
	if n == 0 || n%64 != 0 || len(f.Scan) < 4+n || f.Scan[1]&3 != 0 {
		return false
	}
	t := f.Scan[4 : 4+n]
	f.Tables, f.Scan = [2][]byte{t[:64], t[:64]}, f.Scan[4+n:]
	if n > 64 {
		f.Tables[1] = t[64:128]
	}
	return true
}

// cut distributes the scan over packets.
func (p *jpegPacketizer) cut(t *Train, scan []byte) {
	base, i, room := udp.Address(scan), 0, p.size-tableHeader
	h := t.headers
	for off := 0; off < len(scan); i++ {
		n := min(room, len(scan)-off)
		p.times(h, uint16(p.next), &t.info)
		be.PutUint32(h[p.head:], uint32(off)) // type-specific 0, fragment offset of 24 bits
		h[1] = p.pt
		if off += n; off == len(scan) {
			h[1] |= 1 << 7
		}
		t.iov[2*i+1] = udp.Vector{Base: base, Len: uint64(n)}
		base += uintptr(n)
		p.next, room = p.next+1, p.size
		h = t.headers[tableHeader+(i+1)*p.headers:]
	}
	t.count, t.bytes = i, len(scan)+i*p.headers+tableHeader
}
