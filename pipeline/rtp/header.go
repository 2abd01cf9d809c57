// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"encoding/binary"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
)

// ClockRate is the rate of RTP timestamps, in ticks per second (RFC 4175 §6.1, RFC 3551 §4.5).
const ClockRate = 90000

const (
	rtpHeader   = 12 // bytes (RFC 3550 §5.1)
	ipUDPHeader = 48 // bytes of IPv6 and UDP headers; IPv4 headers are smaller, but one train serves both
)

var (
	be = binary.BigEndian
	ne = binary.NativeEndian
)

// headerWriter writes the RTP headers of one SSRC.
type headerWriter struct {
	ssrc   uint32
	offset uint32 // added to the timestamps
	next   uint32 // extended sequence number of the next packet
	pt     uint8
	head   int // bytes of the RTP header, including the extension
}

func newHeaderWriter(s Stream) headerWriter {
	return headerWriter{ssrc: s.Start.SSRC, offset: s.Start.Timestamp, next: s.Start.Sequence, pt: s.Payload.Type(), head: s.HeaderSize()}
}

// The URI, the identifier and the size in bytes of the header extension abs-capture-time. In the one-byte form of RFC
// 8285 §4.2 it consists of the extension header (profile and length in words), the element header, an NTP timestamp and
// padding.
const (
	captureTimeURI  = "http://www.webrtc.org/experiments/rtp-hdrext/abs-capture-time"
	captureTimeID   = 1
	captureTimeSize = 4 + 1 + 8 + 3
)

// SetSSRC implements Packetizer.
func (w *headerWriter) SetSSRC(ssrc uint32) { w.ssrc = ssrc }

// claim sets w's SSRC in all headers of t, if t has another one.
func (w *headerWriter) claim(t *Train) {
	if t.info.ssrc == w.ssrc {
		return
	}
	for i := range t.msgs {
		be.PutUint32(t.header(i)[8:], w.ssrc)
	}
}

// HeaderSize returns the length of the RTP header in bytes, including the extension. It is the same in all packets.
func (s Stream) HeaderSize() int {
	if s.CaptureTime {
		return rtpHeader + captureTimeSize
	}
	return rtpHeader
}

// header writes the constant fields of an RTP header (RFC 3550 §5.1).
func (w *headerWriter) header(h []byte, marker bool) {
	h[0], h[1] = 2<<6, w.pt
	if marker {
		h[1] |= 1 << 7
	}
	be.PutUint32(h[8:], w.ssrc)
	if w.head > rtpHeader {
		h[0] |= 1 << 4
		be.PutUint32(h[12:], 0xbede0003)
		h[16] = captureTimeID<<4 | 8 - 1
	}
}

// times writes the fields of an RTP header that change from frame to frame.
func (w *headerWriter) times(h []byte, seq uint16, info *trainInfo) {
	be.PutUint16(h[2:], seq)
	be.PutUint32(h[4:], info.timestamp)
	if w.head > rtpHeader {
		be.PutUint64(h[17:], info.ntp)
	}
}

// info returns the data about f that RTCP needs, except the checksum and the number of bytes that it covers and, for a
// filling frame, the fields that complete sets later.
func (w *headerWriter) info(f *pipeline.Frame) trainInfo {
	at := f.Times.Shown()
	i := trainInfo{ssrc: w.ssrc, timestamp: MediaClock(at) + w.offset, sequence: f.Sequence, group: f.Group, captured: at, ntp: NTP(at)}
	if !f.Filling() {
		i.complete(f)
	}
	return i
}

// complete sets the fields that are known only when f is complete.
func (i *trainInfo) complete(f *pipeline.Frame) {
	i.done, i.unverified = f.Times.Arrived(), f.Flags&pipeline.FlagUnverified != 0
}

// MediaClock returns t in units of 1/90000 s since 1970, modulo 2^32.
func MediaClock(t time.Time) uint32 {
	ns := uint64(t.UnixNano())
	return uint32(ns/1e9*ClockRate + ns%1e9*(ClockRate/1e4)/1e5)
}

// NTP returns t as an NTP timestamp: seconds since 1900 in 32.32 bits (RFC 3550 §4).
func NTP(t time.Time) uint64 {
	ns := uint64(t.UnixNano())
	return (ns/1e9+ntpEpoch)<<32 | (ns%1e9<<32)/1e9
}

// ntpEpoch is the number of seconds from the start of 1900 to the start of 1970.
const ntpEpoch = 2208988800

// FromNTP is the inverse of NTP, to within a nanosecond, for times from 1970 to February 2036.
func FromNTP(n uint64) time.Time {
	return time.Unix(int64(n>>32)-ntpEpoch, int64((n&0xffffffff)*1e9>>32))
}

// CRC returns the checksum of a frame's bytes for checksum packets, CRC-32C.
func CRC(b []byte) uint32 { return crc.Castagnoli(0, b) }
