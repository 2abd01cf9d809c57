// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A reporter holds the state for the receiver reports of a stream (RFC 3550 §6.4.2).
type reporter struct {
	ssrc     uint32
	sdes     []byte
	expected uint64 // counts at the previous report
	received uint64
}

func newReporter() reporter {
	ssrc := rtp.RandomStart().SSRC
	return reporter{ssrc: ssrc, sdes: rtp.SourceDescription(ssrc)}
}

// report returns a compound of a receiver report and the CNAME, or nil until a packet and a sender report have arrived.
func (s *stream) report(now time.Time) []byte {
	if s.sr.at.IsZero() || !s.seq.started {
		return nil
	}
	expected, received := s.seq.expected(), s.seq.unique
	if expected < s.rr.expected { // the sender has changed
		s.rr.expected, s.rr.received = 0, 0
	}
	interval, lost := expected-s.rr.expected, int64(expected-s.rr.expected)-int64(received-s.rr.received)
	s.rr.expected, s.rr.received = expected, received
	block := rtcp.ReceptionReport{
		SSRC: s.ssrc, TotalLost: uint32(min(s.seq.lost(), 1<<23-1)), LastSequenceNumber: uint32(s.seq.max),
		Jitter: s.jitter >> 4, LastSenderReport: uint32(s.sr.ntp >> 16),
		Delay: uint32(now.Sub(s.sr.at) << 16 / time.Second),
	}
	if interval > 0 && lost > 0 {
		block.FractionLost = uint8(min(lost<<8/int64(interval), 255))
	}
	b, err := (&rtcp.ReceiverReport{SSRC: s.rr.ssrc, Reports: []rtcp.ReceptionReport{block}}).Marshal()
	if err != nil {
		return nil
	}
	return append(b, s.rr.sdes...)
}
