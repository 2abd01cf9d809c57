// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"slices"

	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A piece is the payload of one packet, in the assembly's memory.
type piece struct {
	number uint64 // extended sequence number
	from   int
	to     int
	marker bool
}

const (
	maxUnit    = 16 << 20 // maximum size of an access unit in bytes
	maxPieces  = 1 << 14  // maximum number of packets of an access unit
	remembered = 8        // number of markers that are remembered
)

// h264Depacketizer implements RFC 6184, packetization modes 0 and 1. It recognises the start of an access unit by the
// content of its first packet (rtp.H264Payload.Begins). If this packet begins with an IDR picture or a picture
// parameter set, the packet before it must have had a marker, because otherwise parameter sets before it may have been
// lost.
type h264Depacketizer struct {
	markers [remembered]uint64 // numbers of recent packets with a marker, plus 1
	next    int
	stream  []byte
}

func (d *h264Depacketizer) sequence(low uint16, _ []byte) (uint32, error) { return uint32(low), nil }

func (d *h264Depacketizer) beginFrame(a *assembly, timestamp uint32, joined bool) {
	a.beginFrame(timestamp, joined, 0)
	a.pieces = a.pieces[:0]
}

func (d *h264Depacketizer) addPayload(a *assembly, number uint64, payload []byte, marker bool) error {
	if _, ok := rtp.ParseH264(payload); !ok || a.total+len(payload) > maxUnit || len(a.pieces) == maxPieces {
		return errMalformed
	}
	if need := a.total + len(payload); need > len(a.mem) {
		a.mem = append(a.mem, make([]byte, max(need, 2*len(a.mem), 1<<18)-len(a.mem))...)
	}
	p := piece{number, a.total, a.total + copy(a.mem[a.total:], payload), marker}
	a.total = p.to
	i := len(a.pieces)
	for i > 0 && a.pieces[i-1].number > number {
		i--
	}
	a.pieces = slices.Insert(a.pieces, i, p)
	if marker {
		d.markers[d.next], d.next = number+1, (d.next+1)%remembered
	}
	return nil
}

func (d *h264Depacketizer) complete(a *assembly) bool {
	n := len(a.pieces)
	if n == 0 || !a.pieces[n-1].marker || a.pieces[n-1].number-a.pieces[0].number != uint64(n-1) {
		return false
	}
	first, _ := rtp.ParseH264(a.payload(0))
	certain := first.Type != rtp.UnitIDR && first.Type != rtp.UnitPPS
	return first.Begins() && (certain || slices.Contains(d.markers[:], a.pieces[0].number)) && a.nested()
}

func (a *assembly) payload(i int) []byte { return a.mem[a.pieces[i].from:a.pieces[i].to] }

// nested reports whether the parts of each unit follow one another from its start to its end.
func (a *assembly) nested() bool {
	inside := false
	for i := range a.pieces {
		p, _ := rtp.ParseH264(a.payload(i))
		if p.Start == inside {
			return false
		}
		inside = !p.End
	}
	return !inside
}

// frame returns the units as a byte stream. The checksum covers them without their start codes.
func (d *h264Depacketizer) frame(a *assembly) (picture []byte, sum, bytes uint32) {
	d.stream = d.stream[:0]
	add := func(begins bool, parts ...[]byte) {
		if begins {
			d.stream = append(d.stream, 0, 0, 0, 1)
		}
		for _, b := range parts {
			sum = crc.Castagnoli(sum, b)
			bytes += uint32(len(b))
			d.stream = append(d.stream, b...)
		}
	}
	for i := range a.pieces {
		p, _ := rtp.ParseH264(a.payload(i))
		switch {
		case p.Many:
			for data := p.Data; len(data) > 0; {
				var unit []byte
				unit, data, _ = p.Cut(data)
				add(true, unit)
			}
		case p.Start && p.Header != 0:
			add(true, []byte{p.Header}, p.Data)
		default:
			add(p.Start, p.Data)
		}
	}
	return d.stream, sum, bytes
}
