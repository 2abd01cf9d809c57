// SPDX-License-Identifier: Apache-2.0

package rtp

import "bytes"

// Fields of the first byte of a unit, and unit types (H.264 §7.3.1, table 7-1; RFC 6184 §5.2).
const (
	UnitTypes = 0x1f // mask of the unit type in the first byte

	unitSTAPA = 24
	unitFUA   = 28

	UnitSlice = 1
	UnitIDR   = 5
	UnitSEI   = 6
	UnitSPS   = 7
	UnitPPS   = 8
	UnitAUD   = 9
)

// Flags of an FU header (RFC 6184 §5.8).
const (
	fuStart = 1 << 7
	fuEnd   = 1 << 6
)

// startCode precedes each unit in a byte stream, after any number of zeros (H.264 §B.1).
var startCode = []byte{0, 0, 1}

// NextUnit returns the first non-empty unit of a byte stream (H.264 Annex B) and the rest of the stream. unit is nil if
// there is none.
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
		unit, stream = bytes.TrimRight(unit, "\x00"), rest // a unit does not end with a zero (H.264 §7.4.1)
	}
	return unit, rest
}

// An H264Payload is the parsed payload of a packet.
type H264Payload struct {
	Type       byte   // type of the unit, or of the first of several units
	Start, End bool   // whether the packet contains the first part, and the last part, of a unit
	Data       []byte // bytes of one unit; or several units, each preceded by its length in two bytes
	Header     byte   // for a part of a unit: the unit's first byte, which Data lacks; otherwise 0
	Many       bool   // Data contains several units with lengths
}

// ParseH264 parses a payload of RFC 6184 in packetization mode 0 or 1: one unit, several (STAP-A), or a part of one
// (FU-A). ok is false for any other payload. Data is a slice of payload.
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

// Cut returns the first unit of data, which contains units with lengths, and the rest. ok is false if data does not
// begin with a complete unit of at least one byte.
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

// Begins reports whether the payload can be the first of an access unit: it begins with an access unit delimiter,
// supplemental information, a parameter set, or the first slice of a picture (H.264 §7.4.1.2.3). In such a slice
// first_mb_in_slice is 0, so that the first bit after the unit's first byte is 1.
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
		if p.Header == 0 { // a whole unit: Data includes its first byte
			slice = slice[1:]
		}
		return len(slice) > 0 && slice[0]&0x80 != 0
	}
	return false
}
