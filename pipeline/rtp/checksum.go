// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"errors"
	"time"
)

// A Checksum tells what a frame was when it was sent. It travels as an RTCP APP packet (RFC 3550 §6.7) with the name
// TGCR, subtype 0, laid out in docs/rtp.md.
type Checksum struct {
	Timestamp uint32    // the frame's RTP timestamp
	CRC       uint32    // CRC-32C: of the UYVY lines without padding, or of the JPEG scan as sent
	Sequence  uint64    // the frame's number, counted by the FPGA
	Captured  time.Time // what the RTP timestamp was made from
	Bytes     uint32    // that CRC covers
	Packets   uint32    // of the frame
}

const (
	checksumName = "TGCR"
	checksumSize = 32 // of the data after the name
	appHeader    = 12
)

var errChecksum = errors.New("rtp: not a TGCR packet")

// append appends the APP packet of the sender ssrc to b.
func (c Checksum) append(b []byte, ssrc uint32) []byte {
	b = append(b, 2<<6, rtcpAPP, 0, (appHeader+checksumSize)/4-1)
	b = be.AppendUint32(b, ssrc)
	b = append(b, checksumName...)
	b = be.AppendUint32(b, c.Timestamp)
	b = be.AppendUint32(b, c.CRC)
	b = be.AppendUint64(b, c.Sequence)
	b = be.AppendUint64(b, uint64(c.Captured.UnixNano()))
	b = be.AppendUint32(b, c.Bytes)
	return be.AppendUint32(b, c.Packets)
}

// ParseChecksum reads name and data of an APP packet.
func ParseChecksum(subtype uint8, name string, data []byte) (Checksum, error) {
	if subtype != 0 || name != checksumName || len(data) != checksumSize {
		return Checksum{}, errChecksum
	}
	return Checksum{
		Timestamp: be.Uint32(data), CRC: be.Uint32(data[4:]), Sequence: be.Uint64(data[8:]),
		Captured: time.Unix(0, int64(be.Uint64(data[16:]))), Bytes: be.Uint32(data[24:]), Packets: be.Uint32(data[28:]),
	}, nil
}
