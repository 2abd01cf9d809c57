// SPDX-License-Identifier: Apache-2.0

package rtp

import "bytes"

// What the first byte of a unit says (H.264 §7.3.1, table 7-1; RFC 6184 §5.2).
const (
	UnitTypes = 0x1f // the bits of a unit's first byte that say which kind it is

	unitSTAPA = 24
	unitFUA   = 28

	UnitSlice = 1
	UnitIDR   = 5
	UnitSEI   = 6
	UnitSPS   = 7
	UnitPPS   = 8
	UnitAUD   = 9
)

// What an FU header says (RFC 6184 §5.8).
const (
	fuStart = 1 << 7
	fuEnd   = 1 << 6
)

// startCode begins a unit in a byte stream, behind any number of zeros (H.264 §B.1).
var startCode = []byte{0, 0, 1}

// NextUnit cuts the first unit that is not empty off a byte stream (H.264 Annex B). unit is nil when there is none.
func NextUnit(stream []byte) (unit, rest []byte) {
	for len(unit) == 0 {
		at := bytes.Index(stream, startCode)
		if at < 0 {
			return nil, nil
		}
		unit, rest = stream[at+len(startCode):], nil
		if end := bytes.Index(unit, startCode); end >= 0 {
			unit, rest = unit[:end], unit[end:]
		}
		unit, stream = bytes.TrimRight(unit, "\x00"), rest // no unit ends with a zero (H.264 §7.4.1)
	}
	return unit, rest
}

// An H264Payload is what a packet carries.
type H264Payload struct {
	Type       byte   // of the unit, or of the first one
	Start, End bool   // the packet has the beginning and the end of a unit
	Data       []byte // of one unit, or units that each have their length in two bytes before them
	Header     byte   // the unit's first byte, which is not in Data when the packet has a part of it
	Many       bool   // Data has lengths
}

// ParseH264 reads a payload of RFC 6184, packetization modes 0 and 1: one unit, several (STAP-A), or a part of one (FU-A).
// ok is false for any other one. Data is a part of payload.
func ParseH264(payload []byte) (p H264Payload, ok bool) {
	if len(payload) == 0 || payload[0]&0x80 != 0 {
		return p, false
	}
	switch kind := payload[0] & UnitTypes; {
	case kind == unitFUA:
		if len(payload) <= fuHeader {
			return p, false
		}
		fu := payload[1]
		p = H264Payload{
			Type: fu & UnitTypes, Start: fu&fuStart != 0, End: fu&fuEnd != 0, Data: payload[fuHeader:],
			Header: payload[0]&^UnitTypes | fu&UnitTypes,
		}
		return p, p.Type > 0 && p.Type < unitSTAPA && !(p.Start && p.End)
	case kind == unitSTAPA:
		p = H264Payload{Start: true, End: true, Data: payload[1:], Many: true}
		for data := p.Data; ; {
			unit, rest, ok := p.Cut(data)
			if !ok || unit[0]&UnitTypes == 0 || unit[0]&UnitTypes >= unitSTAPA {
				return p, false
			}
			if p.Type == 0 {
				p.Type = unit[0] & UnitTypes
			}
			if data = rest; len(data) == 0 {
				return p, true
			}
		}
	default:
		return H264Payload{Type: kind, Start: true, End: true, Data: payload}, kind > 0 && kind < unitSTAPA
	}
}

// Cut takes the first unit off data that has lengths. ok is false when there is none.
func (p H264Payload) Cut(data []byte) (unit, rest []byte, ok bool) {
	if len(data) < 2 {
		return nil, nil, false
	}
	n := int(be.Uint16(data))
	if n == 0 || n > len(data)-2 {
		return nil, nil, false
	}
	return data[2:][:n], data[2+n:], true
}

// Begins says whether the payload can be the first of an access unit: it has an access unit delimiter, information or a parameter
// set, or the first slice of a picture (H.264 §7.4.1.2.3). first_mb_in_slice is 0 when its first bit is 1.
func (p H264Payload) Begins() bool {
	switch {
	case !p.Start:
		return false
	case p.Type >= UnitSEI && p.Type <= UnitAUD:
		return true
	case p.Type == UnitSlice || p.Type == UnitIDR:
		slice := p.Data
		if p.Many {
			slice, _, _ = p.Cut(slice)
		}
		if p.Header == 0 { // all of the unit: its first byte is here, too
			slice = slice[1:]
		}
		return len(slice) > 0 && slice[0]&0x80 != 0
	}
	return false
}
