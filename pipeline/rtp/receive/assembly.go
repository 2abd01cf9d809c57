// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/pipeline/mjpeg"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// errMalformed means that a payload violates its RFC, is not allowed by the SDP, or makes its frame too large.
var errMalformed = errors.New("rtp: malformed payload")

// errInterlaced means that a payload has a line of the second field of interlaced video (RFC 4175 §4.2).
var errInterlaced = fmt.Errorf("%w: interlaced video is not received", errMalformed)

// An assembly is a frame that is being put together from packets in any order.
type assembly struct {
	open      bool
	joined    bool // its start may have been sent before reception began
	timestamp uint32
	first     uint64 // lowest extended sequence number so far
	last      uint64 // highest extended sequence number so far
	got       coverage
	total     int // size in bytes (of H.264: so far); -1: not yet known
	mem       []byte
	summed    int    // crc covers the bytes before this offset
	crc       uint32 // CRC-32C
	jpeg      rtp.JPEGHeader
	quant     [128]byte
	hasQuant  bool
	pieces    []piece // for H.264
}

func (a *assembly) beginFrame(timestamp uint32, joined bool, total int) {
	a.open, a.joined, a.timestamp, a.total = true, joined, timestamp, total
	a.first, a.last, a.hasQuant, a.jpeg = math.MaxUint64, 0, false, rtp.JPEGHeader{}
	a.summed, a.crc = 0, 0
	a.got.reset()
}

// sumPiece is the number of bytes that are summed at a time, while they are still in the cache. If a frame were summed
// only when complete, a receiver of 16 Gb/s would lose packets that arrive meanwhile.
const sumPiece = 128 << 10

// sum continues the CRC of mem up to end. All bytes before end must have arrived.
func (a *assembly) sum(end int) {
	a.crc = crc.Castagnoli(a.crc, a.mem[a.summed:end])
	a.summed = end
}

// placed updates the CRC after bytes of mem from at on were written.
func (a *assembly) placed(at int) {
	if at < a.summed { // overwritten, possibly with different data
		a.summed, a.crc = 0, 0
	} else if end := a.got.prefix(); end-a.summed >= sumPiece {
		a.sum(end)
	}
}

// A depacketizer implements one payload format.
type depacketizer interface {
	// sequence returns the sequence number of a packet: the extended one in raw video (RFC 4175), otherwise low.
	sequence(low uint16, payload []byte) (uint32, error)
	// beginFrame starts a frame.
	beginFrame(a *assembly, timestamp uint32, joined bool)
	// addPayload stores the payload of the packet with the given extended sequence number. If it returns errMalformed
	// it has stored nothing.
	addPayload(a *assembly, number uint64, payload []byte, marker bool) error
	complete(a *assembly) bool
	// frame returns the picture of a complete frame, which is valid until the next call of frame or beginFrame, and the
	// CRC-32C and the number of the bytes that the sender's checksum covers.
	frame(a *assembly) (picture []byte, crc, bytes uint32)
}

// newDepacketizer returns the depacketizer for a medium; f is the format of raw frames.
func newDepacketizer(m rtp.Media, f pipeline.Format) depacketizer {
	switch m.Payload {
	case rtp.JPEG:
		return &jpegDepacketizer{media: m, huffman: mjpeg.HuffmanTables()}
	case rtp.H264:
		return &h264Depacketizer{}
	case rtp.Results:
		return &resultsDepacketizer{}
	}
	return &rawDepacketizer{group: f.Pixel.Group(), line: f.Pixel.LineBytes(f.Width), height: f.Height}
}

// rawDepacketizer implements RFC 4175.
type rawDepacketizer struct {
	group        pipeline.PixelGroup
	line, height int
}

func (d *rawDepacketizer) sequence(low uint16, payload []byte) (uint32, error) {
	if len(payload) < 2 {
		return 0, errMalformed
	}
	return uint32(binary.BigEndian.Uint16(payload))<<16 | uint32(low), nil
}

func (d *rawDepacketizer) beginFrame(a *assembly, timestamp uint32, joined bool) {
	a.beginFrame(timestamp, joined, d.line*d.height)
	if len(a.mem) != a.total {
		a.mem = make([]byte, a.total)
	}
}

// addPayload checks all line headers (RFC 4175 §4.2) first, and then copies.
func (d *rawDepacketizer) addPayload(a *assembly, _ uint64, payload []byte, _ bool) error {
	headers := 2
	for more := true; more; headers += 6 {
		if len(payload) < headers+6 {
			return errMalformed
		}
		more = payload[headers+4]&0x80 != 0
	}
	data := payload[headers:]
	for pass, rest := range [2][]byte{data, data} {
		for h := payload[2:headers]; len(h) > 0; h = h[6:] {
			n, y, pixel := int(binary.BigEndian.Uint16(h)), int(binary.BigEndian.Uint16(h[2:])), int(binary.BigEndian.Uint16(h[4:])&0x7fff)
			x := pixel / d.group.Pixels * d.group.Bytes
			if y&0x8000 != 0 { // the field bit
				return errInterlaced
			}
			if n > len(rest) || n%d.group.Bytes != 0 || pixel%d.group.Pixels != 0 || y >= d.height || x+n > d.line {
				return errMalformed
			}
			if at := y*d.line + x; pass == 1 && a.got.add(at, at+n) {
				copy(a.mem[at:], rest[:n])
				a.placed(at)
			}
			rest = rest[n:]
		}
	}
	return nil
}

func (d *rawDepacketizer) complete(a *assembly) bool { return a.got.covers(a.total) }

func (d *rawDepacketizer) frame(a *assembly) (picture []byte, crc, bytes uint32) {
	a.sum(a.total)
	return a.mem, a.crc, uint32(a.total)
}

// jpegDepacketizer implements RFC 2435 types 0, 1, 64 and 65 with in-band quantization tables.
type jpegDepacketizer struct {
	media   rtp.Media
	huffman [4][]byte
}

func (d *jpegDepacketizer) sequence(low uint16, _ []byte) (uint32, error) { return uint32(low), nil }

func (d *jpegDepacketizer) beginFrame(a *assembly, timestamp uint32, joined bool) {
	a.beginFrame(timestamp, joined, -1)
}

func (d *jpegDepacketizer) addPayload(a *assembly, _ uint64, payload []byte, marker bool) error {
	f, ok := rtp.ParseJPEG(payload)
	if !ok || a.jpeg != (rtp.JPEGHeader{}) && a.jpeg != f.Header {
		return errMalformed
	}
	end := f.Offset + len(f.Scan)
	if a.total >= 0 && (end > a.total || marker && end != a.total) {
		return errMalformed
	}
	a.jpeg = f.Header
	if f.Tables[0] != nil {
		a.hasQuant = true
		copy(a.quant[:64], f.Tables[0])
		copy(a.quant[64:], f.Tables[1])
	}
	if marker {
		a.total = end
	}
	if need := f.Header.FileHeader() + end + 2; need > len(a.mem) {
		a.mem = append(a.mem, make([]byte, max(need, 2*len(a.mem), 1<<18)-len(a.mem))...)
	}
	if a.got.add(f.Offset, end) {
		copy(a.mem[f.Header.FileHeader()+f.Offset:], f.Scan)
	}
	return nil
}

func (d *jpegDepacketizer) complete(a *assembly) bool { return a.hasQuant && a.got.covers(a.total) }

// frame puts a JFIF header before the scan, and EOI after it unless the sender has sent it.
func (d *jpegDepacketizer) frame(a *assembly) (picture []byte, crc, bytes uint32) {
	w, h := 8*int(a.jpeg.Width), 8*int(a.jpeg.Height)
	if (d.media.Width+7)&^7 == w && (d.media.Height+7)&^7 == h {
		w, h = d.media.Width, d.media.Height
	}
	start := len(a.jpeg.AppendJFIF(a.mem[:0], w, h, a.quant[:], &d.huffman))
	end := start + a.total
	checked := a.mem[start:end]
	if n := len(checked); n < 2 || string(checked[n-2:]) != rtp.JPEGEnd {
		end += copy(a.mem[end:], rtp.JPEGEnd)
	}
	return a.mem[:end], rtp.CRC(checked), uint32(len(checked))
}

// FrameInfo describes a received frame.
type FrameInfo struct {
	Format    pipeline.Format // format of raw frames; zero for other payloads
	Timestamp uint32          // RTP timestamp
	CRC       uint32          // CRC-32C of the bytes that the sender's checksum covers
}
