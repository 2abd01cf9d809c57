// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// errMalformed is a payload that breaks its RFC, or that the SDP does not allow.
var errMalformed = errors.New("rtp: malformed payload")

// An assembly is a frame that is being put together from packets, in whatever order they come.
type assembly struct {
	open      bool
	joined    bool // its beginning may have passed before we listened
	timestamp uint32
	first     uint64 // the lowest extended sequence number
	got       coverage
	total     int // bytes; -1: not known yet
	mem       []byte
	summed    int    // crc covers the bytes before
	crc       uint32 // CRC-32C
	jpeg      rtp.JPEGHeader
	quant     [128]byte
	hasQuant  bool
	pieces    []piece // of H.264
}

func (a *assembly) begin(timestamp uint32, joined bool, total int) {
	a.open, a.joined, a.timestamp, a.total = true, joined, timestamp, total
	a.first, a.hasQuant, a.jpeg = math.MaxUint64, false, rtp.JPEGHeader{}
	a.summed, a.crc = 0, 0
	a.got.reset()
}

// sumPiece is how much of a frame is summed at once: it is in the cache still. Of a frame that is summed when it is complete, a
// receiver of 16 Gb/s would lose what comes meanwhile.
const sumPiece = 128 << 10

// castagnoli is the table of CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum goes on with the CRC of mem, of which all bytes before end have come.
func (a *assembly) sum(end int) {
	a.crc = crc32.Update(a.crc, castagnoli, a.mem[a.summed:end])
	a.summed = end
}

// placed takes note that bytes from at on were written.
func (a *assembly) placed(at int) {
	if at < a.summed { // written again, perhaps otherwise
		a.summed, a.crc = 0, 0
	} else if end := a.got.prefix(); end-a.summed >= sumPiece {
		a.sum(end)
	}
}

// A depacketizer knows one payload format.
type depacketizer interface {
	// sequence is the extended sequence number of a packet.
	sequence(low uint16, payload []byte) (uint32, error)
	// begin starts a frame.
	begin(a *assembly, timestamp uint32, joined bool)
	// add places a payload, of the packet with an extended sequence number. It takes nothing from a payload that it refuses
	// with errMalformed.
	add(a *assembly, number uint64, payload []byte, marker bool) error
	whole(a *assembly) bool
	// frame returns the picture of a whole frame, which is valid until the assembly begins again, and the CRC-32C and the number
	// of the bytes that the sender's checksum covers.
	frame(a *assembly) (picture []byte, crc, bytes uint32)
}

// newDepacketizer makes the one of a medium, of which raw frames have format f.
func newDepacketizer(m rtp.Media, f pipeline.Format) depacketizer {
	switch m.Payload {
	case rtp.JPEG:
		return &jpegDepacketizer{media: m, huffman: rtp.HuffmanTables()}
	case rtp.H264:
		return &h264Depacketizer{}
	}
	return &rawDepacketizer{group: f.Pixel.Group(), line: f.Pixel.LineBytes(f.Width), height: f.Height}
}

// rawDepacketizer reads RFC 4175.
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

func (d *rawDepacketizer) begin(a *assembly, timestamp uint32, joined bool) {
	a.begin(timestamp, joined, d.line*d.height)
	if len(a.mem) != a.total {
		a.mem = make([]byte, a.total)
	}
}

// add walks the line headers (RFC 4175 §4.2) first and copies when all of them are right.
func (d *rawDepacketizer) add(a *assembly, _ uint64, payload []byte, _ bool) error {
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
			// y has the field bit on top: the second field of interlaced video is out of range here.
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

func (d *rawDepacketizer) whole(a *assembly) bool { return a.got.whole(a.total) }

func (d *rawDepacketizer) frame(a *assembly) (picture []byte, crc, bytes uint32) {
	a.sum(a.total)
	return a.mem, a.crc, uint32(a.total)
}

// jpegDepacketizer reads RFC 2435 type 1 with quantization tables in-band.
type jpegDepacketizer struct {
	media   rtp.Media
	huffman [4][]byte
}

func (d *jpegDepacketizer) sequence(low uint16, _ []byte) (uint32, error) { return uint32(low), nil }

func (d *jpegDepacketizer) begin(a *assembly, timestamp uint32, joined bool) {
	a.begin(timestamp, joined, -1)
}

func (d *jpegDepacketizer) add(a *assembly, _ uint64, payload []byte, marker bool) error {
	f, ok := rtp.ParseJPEG(payload)
	if !ok || a.jpeg != (rtp.JPEGHeader{}) && a.jpeg != f.Header {
		return errMalformed
	}
	end := f.Offset + len(f.Scan)
	if a.total >= 0 && (end > a.total || marker && end != a.total) {
		return errMalformed
	}
	a.jpeg = f.Header
	if f.Tables != nil {
		a.hasQuant = true
		copy(a.quant[:], f.Tables)
	}
	if marker {
		a.total = end
	}
	if need := rtp.JFIFHeader + end + 2; need > len(a.mem) {
		a.mem = append(a.mem, make([]byte, max(need, 2*len(a.mem), 1<<18)-len(a.mem))...)
	}
	if a.got.add(f.Offset, end) {
		copy(a.mem[rtp.JFIFHeader+f.Offset:], f.Scan)
	}
	return nil
}

func (d *jpegDepacketizer) whole(a *assembly) bool { return a.hasQuant && a.got.whole(a.total) }

// frame puts a JFIF header before the scan and EOI behind it, unless the sender has sent that.
func (d *jpegDepacketizer) frame(a *assembly) (picture []byte, crc, bytes uint32) {
	w, h := 8*int(a.jpeg.Width), 8*int(a.jpeg.Height)
	if (d.media.Width+7)&^7 == w && (d.media.Height+7)&^7 == h {
		w, h = d.media.Width, d.media.Height
	}
	rtp.AppendJFIF(a.mem[:0], w, h, a.quant[:], &d.huffman)
	end := rtp.JFIFHeader + a.total
	checked := a.mem[rtp.JFIFHeader:end]
	if n := len(checked); n < 2 || string(checked[n-2:]) != rtp.JPEGEnd {
		end += copy(a.mem[end:], rtp.JPEGEnd)
	}
	return a.mem[:end], rtp.CRC(checked), uint32(len(checked))
}

// FrameInfo tells about a received frame.
type FrameInfo struct {
	Format    pipeline.Format // of raw frames
	Timestamp uint32          // RTP
	CRC       uint32          // CRC-32C of the bytes that the sender's checksum covers
}
