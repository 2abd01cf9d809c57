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
	restarts    = 4        // bytes of the restart marker header (RFC 2435 §3.1.7)
	tableHeader = 4 + 2*64 // bytes (RFC 2435 §3.1.8)
	jpegFile    = 2 << 10  // bytes of room for a file's parts outside the scan: 623 by image/jpeg; libjpeg-turbo requires 2048
	jpegQ       = 255      // quantization tables are sent in every frame (RFC 2435 §4.2)
	unaligned   = 0xffff   // F and L set, restart count 0x3fff: packets do not begin with restart intervals (RFC 2435 §3.1.7)
)

// Types of RFC 2435 §4.1.
const (
	jpeg422     = 0
	jpeg420     = 1
	jpegRestart = 64 // added to them if there are restart markers
)

// jpegPacketizer packs I420 frames, which it encodes, and MJPEG frames by RFC 2435. All packets of a frame have the same
// size except the last.
//
// The width and height in the header are rounded up to multiples of 8. The scan covers them, because an encoder pads to
// whole MCUs of 16 pixels. The SDP contains the exact size (a=framesize, RFC 6064 §4.2.1).
type jpegPacketizer struct {
	headerWriter
	format   pipeline.Format
	checksum bool
	encoder  JPEGEncoder // nil: the frames are MJPEG
	parser   *jpegParser
	headers  int // room for the headers of a packet, in bytes
	size     int // maximum bytes of a packet after the RTP and JPEG headers
}

func newJPEGPacketizer(s Stream, f pipeline.Format) *jpegPacketizer {
	p := &jpegPacketizer{headerWriter: newHeaderWriter(s), format: f, checksum: s.Checksum, encoder: s.Encoder, parser: newJPEGParser()}
	p.headers = p.head + jpegHeader
	switch {
	case f.Pixel == pipeline.MJPEG:
		p.encoder = nil
		p.headers += restarts
	case p.encoder == nil:
		p.encoder = NewJPEGEncoder(s.Quality)
	}
	p.size = s.MTU - ipUDPHeader - p.headers
	return p
}

// NewTrain implements Packetizer. The room for the encoder is four times the picture in whole MCUs, plus the parts of a
// file outside the scan, but at most maxFragment. A scan exceeds four times the picture only if it is constructed to
// (each coefficient with the longest code, each byte stuffed). The scan of a MJPEG frame stays in the frame; the room is
// for a copy with Huffman tables.
func (p *jpegPacketizer) NewTrain() (*Train, error) {
	mcus := ((p.format.Width + 15) / 16) * ((p.format.Height + 15) / 16)
	room := min(4*mcus*16*16*3/2+jpegFile, maxFragment)
	if p.encoder == nil {
		room = p.format.Size() + jpegFile
	}
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
		copy(h[p.head+4:], []byte{jpeg420, jpegQ, byte((p.format.Width + 7) / 8), byte((p.format.Height + 7) / 8)})
		t.iov[2*i] = udp.Vector{Base: udp.Address(h), Len: uint64(p.headers)}
	}
	return t, nil
}

// Packetize implements Packetizer. It encodes f, unless it is a file already, and splits the scan into packets.
func (p *jpegPacketizer) Packetize(t *Train, f *pipeline.Frame) error {
	file, err := p.encode(t.scratch, f)
	if err != nil {
		return fmt.Errorf("%w: frame %d: %w", ErrJPEG, f.Sequence, err)
	}
	img, err := p.parser.parse(file)
	if err != nil {
		return fmt.Errorf("frame %d: %w", f.Sequence, err)
	}
	if img.width != p.format.Width || img.height != p.format.Height {
		return fmt.Errorf("%w: frame %d: the file has %dx%d pixels of %dx%d", ErrJPEG, f.Sequence,
			img.width, img.height, p.format.Width, p.format.Height)
	}
	if len(img.scan) > maxFragment {
		return fmt.Errorf("%w: frame %d: a scan of %d bytes: RFC 2435 has room for %d", ErrJPEG, f.Sequence, len(img.scan), maxFragment)
	}
	p.claim(t)
	t.payload, t.info = img.scan, p.info(f)
	t.picture, t.key = img.file, true
	if t.picture == nil {
		t.picture = p.parser.rebuild(t.scratch[:0], &img)
	}
	t.info.pixels = len(img.scan)
	if p.checksum {
		t.info.crc = CRC(img.scan)
	}
	p.cut(t, &img)
	return nil
}

// encode returns the file of f, for which there is room.
func (p *jpegPacketizer) encode(room []byte, f *pipeline.Frame) ([]byte, error) {
	if p.encoder == nil {
		return f.Bytes, nil
	}
	file, err := p.encoder.Encode(room[:0], f)
	if err == nil && (udp.Address(file) != udp.Address(room) || len(file) > len(room)) {
		err = fmt.Errorf("the file outgrew the %d bytes given to the encoder", len(room))
	}
	return file, err
}

// JPEGHeader holds the header fields common to all payloads of a frame (RFC 2435 §3.1). Width and Height are in units
// of 8 pixels. Restart is the number of MCUs between restart markers, or 0 if there are none (§3.1.7).
type JPEGHeader struct {
	Type, Q, Width, Height byte
	Restart                uint16
}

// A JPEGFragment is a parsed payload of RFC 2435.
type JPEGFragment struct {
	Header JPEGHeader
	Offset int       // offset of Scan in the frame's scan, in bytes
	Tables [2][]byte // quantization tables of luma and chroma, 64 bytes each, if Offset is 0; otherwise nil
	Scan   []byte
}

// ParseJPEG parses a payload of type 0, 1, 64 or 65 with in-band quantization tables. ok is false for any other payload,
// and for one that violates RFC 2435. The slices of f share the memory of payload.
func ParseJPEG(payload []byte) (f JPEGFragment, ok bool) {
	if len(payload) < jpegHeader {
		return f, false
	}
	f.Offset = int(be.Uint32(payload) & 0xffffff)
	f.Header, f.Scan = JPEGHeader{Type: payload[4], Q: payload[5], Width: payload[6], Height: payload[7]}, payload[jpegHeader:]
	if f.Header.Type&^jpegRestart > jpeg420 || f.Header.Q < 128 || f.Header.Width == 0 || f.Header.Height == 0 {
		return f, false
	}
	if f.Header.Type&jpegRestart != 0 {
		if len(f.Scan) < restarts || f.Scan[0]|f.Scan[1] == 0 {
			return f, false
		}
		f.Header.Restart, f.Scan = be.Uint16(f.Scan), f.Scan[restarts:]
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

// cut distributes the scan over packets. The quantization tables follow the headers of the first one.
func (p *jpegPacketizer) cut(t *Train, img *jpegImage) {
	base, i, used := udp.Address(img.scan), 0, p.head+jpegHeader
	if img.restart != 0 {
		used += restarts
	}
	h, tables := t.headers, tableHeader
	be.PutUint32(h[used:], 2*64) // reserved byte, precision 0 (8 bits), length
	copy(h[used+4:], img.quant[0])
	copy(h[used+4+64:], img.quant[1])
	for off := 0; off < len(img.scan); i++ {
		n := min(p.size-tables, len(img.scan)-off)
		p.times(h, uint16(p.next), &t.info)
		be.PutUint32(h[p.head:], uint32(off)) // type-specific 0, fragment offset of 24 bits
		h[p.head+4], h[1] = img.kind, p.pt
		if img.restart != 0 {
			be.PutUint16(h[p.head+jpegHeader:], img.restart)
			be.PutUint16(h[p.head+jpegHeader+2:], unaligned)
		}
		if off += n; off == len(img.scan) {
			h[1] |= 1 << 7
		}
		t.iov[2*i].Len = uint64(used + tables)
		t.iov[2*i+1] = udp.Vector{Base: base, Len: uint64(n)}
		base += uintptr(n)
		p.next, tables = p.next+1, 0
		h = t.headers[tableHeader+(i+1)*p.headers:]
	}
	t.count, t.bytes = i, len(img.scan)+i*used+tableHeader
}
