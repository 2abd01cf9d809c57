// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"fmt"
	"sync/atomic"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// An H264Encoder encodes H.264 without B pictures. It belongs to its opener, who must close it.
type H264Encoder interface {
	// Encode appends the access unit of f, which is I420, to dst, as a byte stream (ITU-T H.264 Annex B). If key is
	// true the unit is an IDR picture and begins with the parameter sets. Encode must not write beyond dst's capacity.
	Encode(dst []byte, f *pipeline.Frame, key bool) ([]byte, error)
	// ParameterSets returns the SPS and the PPS of all units, without start codes.
	ParameterSets() (sps, pps []byte)
	// SetBitrate changes the bit rate of the following pictures, in bits per second.
	SetBitrate(bits int) error
	Close() error
}

// ProfileLevelID returns profile, constraints and level of an encoder's pictures as six hexadecimal digits (RFC 6184
// §8.1), or "" without an encoder.
func ProfileLevelID(e H264Encoder) string {
	if e == nil {
		return ""
	}
	sps, _ := e.ParameterSets()
	return fmt.Sprintf("%X", sps[1:4])
}

const (
	blockBytes = 400 // maximum bytes per macroblock, 3200 bits (H.264 §A.3.1)
	unitRoom   = 4096
	fuHeader   = 2   // bytes of the FU indicator and the FU header (RFC 6184 §5.8)
	moreUnits  = 128 // additional packets that a frame may need because it has many units
)

// A key frame is sent every keySeconds seconds, after a frame that could not be packetized, and when a receiver
// requests one; requests cause at most about keysASecond key frames per second. If the frame rate is unknown, all
// frames are key frames.
const (
	keySeconds  = 2
	keysASecond = 2
)

// h264Packetizer packs I420 frames by RFC 6184 in packetization mode 1: a unit is sent in one packet, or in several
// (FU-A) which all have the same size except the last.
type h264Packetizer struct {
	headerWriter
	checksum bool
	encoder  H264Encoder
	room     int // maximum bytes of an encoded frame
	size     int // maximum bytes of a packet after the RTP header
	every    int // frames from one key frame to the next
	rest     int // minimum frames from a key frame to one that a receiver requested
	since    int // frames since the last key frame, including the key frame
	wanted   atomic.Bool
}

func newH264Packetizer(s Stream, f pipeline.Format) *h264Packetizer {
	blocks := (f.Width + 15) / 16 * ((f.Height + 15) / 16)
	p := &h264Packetizer{
		headerWriter: newHeaderWriter(s), checksum: s.Checksum, encoder: s.H264,
		room: blocks*blockBytes + unitRoom, every: 1, rest: 1,
	}
	p.size = s.MTU - ipUDPHeader - p.head
	if f.Rate.Num > 0 {
		p.every = max(keySeconds*f.Rate.Num/f.Rate.Den, 1)
		p.rest = max(f.Rate.Num/f.Rate.Den/keysASecond, 1)
	}
	p.since = p.every
	return p
}

// KeyFrame requests a key frame. It may be called while frames are being packetized.
func (p *h264Packetizer) KeyFrame() { p.wanted.Store(true) }

// NewTrain implements Packetizer.
func (p *h264Packetizer) NewTrain() (*Train, error) {
	n := p.room/(p.size-fuHeader) + moreUnits
	pitch := p.head + fuHeader
	t, err := newTrain(n, 2, n*pitch, p.room)
	if err != nil {
		return nil, err
	}
	for i := range n {
		h := t.headers[i*pitch:][:pitch]
		p.header(h, false)
		t.iov[2*i] = udp.Vector{Base: udp.Address(h), Len: uint64(p.head)}
	}
	return t, nil
}

// Packetize implements Packetizer. It encodes f and splits the access unit into packets.
func (p *h264Packetizer) Packetize(t *Train, f *pipeline.Frame) error {
	key := p.since >= p.every || p.since >= p.rest && p.wanted.Load()
	if key {
		p.wanted.Store(false)
		p.since = 0
	}
	unit, err := p.encoder.Encode(t.scratch[:0], f, key)
	if p.since++; err == nil && (udp.Address(unit) != udp.Address(t.scratch) || len(unit) > len(t.scratch)) {
		err = fmt.Errorf("the access unit outgrew the %d bytes given to the encoder", len(t.scratch))
	}
	if err == nil {
		p.claim(t)
		t.payload, t.info = unit, p.info(f)
		t.picture = unit
		err = p.cut(t, unit)
	}
	if err != nil { // receivers do not have the frame that the next one would refer to
		p.since = p.every
		return fmt.Errorf("%w: frame %d: %w", ErrH264, f.Sequence, err)
	}
	return nil
}

// cut distributes the units of a byte stream over packets.
func (p *h264Packetizer) cut(t *Train, stream []byte) error {
	first, packets := p.next, 0
	t.bytes, t.key = 0, false
	for unit, rest := NextUnit(stream); unit != nil; unit, rest = NextUnit(rest) {
		if packets == 0 { // a key frame begins with its parameter sets
			t.key = unit[0]&UnitTypes == UnitSPS
		}
		t.info.pixels += len(unit)
		if p.checksum {
			t.info.crc = crc.Castagnoli(t.info.crc, unit)
		}
		pieces := 1
		if len(unit) > p.size {
			pieces = (len(unit) - 1 + p.size - fuHeader - 1) / (p.size - fuHeader)
		}
		if packets+pieces > len(t.msgs) {
			p.next = first
			return fmt.Errorf("more than %d packets", len(t.msgs))
		}
		p.packetizeUnit(t, packets, pieces, unit)
		packets += pieces
	}
	if packets == 0 {
		return fmt.Errorf("%d bytes without a unit", len(stream))
	}
	t.header(packets - 1)[1] |= 1 << 7 // marker
	t.count = packets
	return nil
}

// packetizeUnit makes packets of a unit, starting with packet at. A unit in one piece is sent whole. Otherwise the
// pieces contain the bytes after the first one, which holds the unit's type and goes into the header of each packet
// (RFC 6184 §5.6, §5.8).
func (p *h264Packetizer) packetizeUnit(t *Train, at, pieces int, unit []byte) {
	head, data, room := p.head, unit, p.size
	if pieces > 1 {
		head, data, room = p.head+fuHeader, unit[1:], p.size-fuHeader
	}
	for i := range pieces {
		v := t.iov[2*(at+i):]
		v[0].Len = uint64(head)
		h := t.header(at + i)
		h[1] = p.pt
		p.times(h, uint16(p.next), &t.info)
		if pieces > 1 {
			h[p.head], h[p.head+1] = unit[0]&^UnitTypes|unitFUA, unit[0]&UnitTypes
			switch i {
			case 0:
				h[p.head+1] |= fuStart
			case pieces - 1:
				h[p.head+1] |= fuEnd
			}
		}
		n := min(room, len(data))
		v[1] = udp.Vector{Base: udp.Address(data), Len: uint64(n)}
		data = data[n:]
		t.bytes += head + n
		p.next++
	}
}
