// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"crypto/rand"
	"encoding/base64"
	"time"
)

// RTCP packet types (RFC 3550 §12.1).
const (
	rtcpSR   = 200
	rtcpSDES = 202
	rtcpBYE  = 203
	rtcpAPP  = 204
)

// ReportInterval is the time between the reports of a receiver, and of a sender that sends no checksums.
const ReportInterval = time.Second

// Compounds writes the RTCP compound packets of one stream's sender. Each begins with a sender report and the CNAME:
// RFC 3550 §6.1 requires a report and a CNAME in every compound packet.
type Compounds struct {
	ssrc   uint32
	offset uint32 // added to the RTP timestamps
	sdes   []byte
	buf    []byte
}

// NewCompounds returns a writer for the stream whose initial values are s.
func NewCompounds(s Start) *Compounds {
	return &Compounds{ssrc: s.SSRC, offset: s.Timestamp, sdes: SourceDescription(s.SSRC), buf: make([]byte, 0, 256)}
}

// SetSSRC changes the SSRC of the following compounds. The CNAME stays the same (RFC 3550 §6.5.1).
func (c *Compounds) SetSSRC(ssrc uint32) {
	c.ssrc = ssrc
	be.PutUint32(c.sdes[4:], ssrc)
}

// SourceDescription returns an SDES packet with a random CNAME as specified by RFC 7022 §4.2.
func SourceDescription(ssrc uint32) []byte {
	var id [12]byte
	_, _ = rand.Read(id[:]) // never fails, according to crypto/rand
	cname := base64.StdEncoding.EncodeToString(id[:])
	b := append([]byte{2<<6 | 1, rtcpSDES, 0, 0}, 0, 0, 0, 0, 1, byte(len(cname)))
	b = append(b, cname...)
	for b = append(b, 0); len(b)%4 != 0; { // at least one null byte ends the list of items
		b = append(b, 0)
	}
	be.PutUint16(b[2:], uint16(len(b)/4-1))
	be.PutUint32(b[4:], ssrc)
	return b
}

// SenderReport returns a sender report with the CNAME. packets and octets are the numbers of packets and of payload
// bytes sent so far. NTP time and RTP timestamp denote the same instant by the clock from which frames' timestamps are
// made. The result is valid until the next call.
func (c *Compounds) SenderReport(now time.Time, packets, octets uint64) []byte {
	b := append(c.buf[:0], 2<<6, rtcpSR, 0, 6)
	b = be.AppendUint32(b, c.ssrc)
	b = be.AppendUint64(b, NTP(now))
	b = be.AppendUint32(b, MediaClock(now)+c.offset)
	b = be.AppendUint32(b, uint32(packets))
	b = be.AppendUint32(b, uint32(octets))
	return append(b, c.sdes...)
}

// Checksum appends a checksum APP packet to a report.
func (c *Compounds) Checksum(b []byte, sum Checksum) []byte { return sum.append(b, c.ssrc) }

// Damage appends a damage APP packet to a report.
func (c *Compounds) Damage(b []byte, d Damage) []byte { return d.append(b, c.ssrc) }

// Group appends a group APP packet to a report.
func (c *Compounds) Group(b []byte, g Group) []byte { return g.append(b, c.ssrc) }

// Bye appends a BYE packet (RFC 3550 §6.6) to a report.
func (c *Compounds) Bye(b []byte) []byte {
	return be.AppendUint32(append(b, 2<<6|1, rtcpBYE, 0, 1), c.ssrc)
}
