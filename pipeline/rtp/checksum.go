// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"errors"
	"time"
)

// A Checksum describes a frame as it was sent. It is sent as an RTCP APP packet (RFC 3550 §6.7) with the name TGCR, in
// the layout of docs/rtp.md.
type Checksum struct {
	Timestamp uint32    // the frame's RTP timestamp
	CRC       uint32    // CRC-32C, as sent: of the lines without padding, the JPEG scan, the H.264 units or the results
	Sequence  uint64    // the frame's number (pipeline.Frame.Sequence)
	Captured  time.Time // the time from which the RTP timestamp was made
	Bytes     uint32    // number of bytes that CRC covers
	Packets   uint32    // number of packets of the frame
	// Unverified means that the source has no checksum of its own (pipeline.FlagUnverified): CRC then proves what was
	// sent, but not what the sensor delivered.
	Unverified bool
}

// A Damage reports that a frame turned out to be damaged at its source while it was being sent. The frame has no marker
// and is incomplete. A Damage is sent in the same way as a Checksum.
type Damage struct {
	Timestamp uint32 // the frame's RTP timestamp
	Packets   uint32 // number of packets of the frame that were sent
	Sequence  uint64 // the frame's number (pipeline.Frame.Sequence)
}

// A Group is the number of a frame among those of several sources that belong together (pipeline.Frame.Group). It is
// sent in the same way as a Checksum.
type Group struct {
	Timestamp uint32 // the frame's RTP timestamp
	Sequence  uint64 // the frame's number (pipeline.Frame.Sequence)
	Number    uint64 // of the group
}

// Subtypes of a TGCR packet.
const (
	subtypeChecksum   = 0
	subtypeDamage     = 1
	subtypeUnverified = 2 // a checksum with Unverified
	subtypeGroup      = 3
)

const (
	appName      = "TGCR"
	checksumSize = 32 // bytes of data after the name
	damageSize   = 16 // bytes of data after the name
	groupSize    = 24 // bytes of data after the name
	appHeader    = 12 // bytes before the data
)

var (
	errChecksum = errors.New("rtp: not a checksum in a TGCR packet")
	errDamage   = errors.New("rtp: not a damage in a TGCR packet")
	errGroup    = errors.New("rtp: not a group in a TGCR packet")
)

// application appends the header of an APP packet with size bytes of data to b.
func application(b []byte, subtype byte, ssrc uint32, size int) []byte {
	b = append(b, 2<<6|subtype, rtcpAPP, 0, byte((appHeader+size)/4-1))
	return append(be.AppendUint32(b, ssrc), appName...)
}

// append appends c to b as an APP packet.
func (c Checksum) append(b []byte, ssrc uint32) []byte {
	subtype := byte(subtypeChecksum)
	if c.Unverified {
		subtype = subtypeUnverified
	}
	b = application(b, subtype, ssrc, checksumSize)
	b = be.AppendUint32(b, c.Timestamp)
	b = be.AppendUint32(b, c.CRC)
	b = be.AppendUint64(b, c.Sequence)
	b = be.AppendUint64(b, uint64(c.Captured.UnixNano()))
	b = be.AppendUint32(b, c.Bytes)
	return be.AppendUint32(b, c.Packets)
}

// ParseChecksum returns the Checksum in an APP packet with the given fields, or an error if the packet is not one of a
// Checksum.
func ParseChecksum(subtype uint8, name string, data []byte) (Checksum, error) {
	if subtype != subtypeChecksum && subtype != subtypeUnverified || name != appName || len(data) != checksumSize {
		return Checksum{}, errChecksum
	}
	return Checksum{
		Timestamp: be.Uint32(data), CRC: be.Uint32(data[4:]), Sequence: be.Uint64(data[8:]),
		Captured: time.Unix(0, int64(be.Uint64(data[16:]))), Bytes: be.Uint32(data[24:]), Packets: be.Uint32(data[28:]),
		Unverified: subtype == subtypeUnverified,
	}, nil
}

// append appends d to b as an APP packet.
func (d Damage) append(b []byte, ssrc uint32) []byte {
	b = application(b, subtypeDamage, ssrc, damageSize)
	b = be.AppendUint32(b, d.Timestamp)
	b = be.AppendUint32(b, d.Packets)
	return be.AppendUint64(b, d.Sequence)
}

// ParseDamage returns the Damage in an APP packet with the given fields, or an error if the packet is not one of a
// Damage.
func ParseDamage(subtype uint8, name string, data []byte) (Damage, error) {
	if subtype != subtypeDamage || name != appName || len(data) != damageSize {
		return Damage{}, errDamage
	}
	return Damage{Timestamp: be.Uint32(data), Packets: be.Uint32(data[4:]), Sequence: be.Uint64(data[8:])}, nil
}

// append appends g to b as an APP packet.
func (g Group) append(b []byte, ssrc uint32) []byte {
	b = application(b, subtypeGroup, ssrc, groupSize)
	b = be.AppendUint32(b, g.Timestamp)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint64(b, g.Sequence)
	return be.AppendUint64(b, g.Number)
}

// ParseGroup returns the Group in an APP packet with the given fields, or an error if the packet is not one of a Group.
func ParseGroup(subtype uint8, name string, data []byte) (Group, error) {
	if subtype != subtypeGroup || name != appName || len(data) != groupSize {
		return Group{}, errGroup
	}
	return Group{Timestamp: be.Uint32(data), Sequence: be.Uint64(data[8:]), Number: be.Uint64(data[16:])}, nil
}
