// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A Report is what a receiver last said about the stream (RFC 3550 §6.4.1).
type Report struct {
	Receiver     uint32        `json:"receiver"`      // SSRC
	From         string        `json:"from"`          // address
	At           time.Time     `json:"at"`            // when it came
	FractionLost float64       `json:"fraction_lost"` // since the report before, 0 to 1
	Lost         int32         `json:"lost"`          // packets in all; duplicates make it less
	Highest      uint32        `json:"highest"`       // extended sequence number
	Jitter       time.Duration `json:"jitter_ns"`
	RoundTrip    time.Duration `json:"round_trip_ns"` // 0: not known
}

// maxReports bounds the receivers that are remembered for a destination.
const maxReports = 16

// hear reads RTCP until the socket is closed.
func (d *destination) hear(listen func(d *destination, b []byte, from netip.AddrPort, now time.Time)) {
	buf := make([]byte, 2048)
	for {
		n, from, err := d.socket.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(rtp.ReportInterval) // nothing that we know of; do not spin on it
			continue
		}
		listen(d, buf[:n], from, time.Now())
	}
}

// heardFrom keeps and returns the reports of an RTCP compound, and says whether it asks for a key frame.
func (c *counters) heardFrom(b []byte, ssrc uint32, from netip.AddrPort, now time.Time) (reports []Report, lostPicture bool) {
	packets, err := rtcp.Unmarshal(b)
	if err != nil {
		return nil, false
	}
	reports = receptions(packets, ssrc, now)
	c.take(reports, from.String())
	return reports, slices.ContainsFunc(packets, func(p rtcp.Packet) bool { return asksKeyFrame(p, ssrc) })
}

// take keeps the reports of a receiver.
func (c *counters) take(reports []Report, from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range reports {
		r.From = from
		c.keep(r)
	}
}

// asksKeyFrame says whether a receiver cannot decode the stream's pictures (RFC 4585 §6.3.1, RFC 5104 §4.3.1).
func asksKeyFrame(p rtcp.Packet, ssrc uint32) bool {
	switch p := p.(type) {
	case *rtcp.PictureLossIndication:
		return p.MediaSSRC == ssrc
	case *rtcp.FullIntraRequest:
		return slices.ContainsFunc(p.FIR, func(e rtcp.FIREntry) bool { return e.SSRC == ssrc })
	}
	return false
}

// keep replaces the receiver's report before, or the oldest when there are too many.
func (c *counters) keep(r Report) {
	oldest := 0
	for i, old := range c.heard {
		if old.Receiver == r.Receiver {
			c.heard[i] = r
			return
		}
		if old.At.Before(c.heard[oldest].At) {
			oldest = i
		}
	}
	if len(c.heard) < maxReports {
		c.heard = append(c.heard, r)
		return
	}
	c.heard[oldest] = r
}

// receptions returns the reception reports about ssrc in packets.
func receptions(packets []rtcp.Packet, ssrc uint32, now time.Time) []Report {
	var out []Report
	add := func(receiver uint32, blocks []rtcp.ReceptionReport) {
		for _, r := range blocks {
			if r.SSRC == ssrc {
				out = append(out, newReport(receiver, r, now))
			}
		}
	}
	for _, p := range packets {
		switch p := p.(type) {
		case *rtcp.ReceiverReport:
			add(p.SSRC, p.Reports)
		case *rtcp.SenderReport:
			add(p.SSRC, p.Reports)
		}
	}
	return out
}

func newReport(receiver uint32, r rtcp.ReceptionReport, now time.Time) Report {
	out := Report{
		Receiver: receiver, At: now,
		FractionLost: float64(r.FractionLost) / 256,
		Lost:         int32(r.TotalLost<<8) >> 8, // 24 bits, signed
		Highest:      r.LastSequenceNumber,
		Jitter:       time.Duration(r.Jitter) * time.Second / rtp.ClockRate,
	}
	if r.LastSenderReport != 0 { // RFC 3550 §6.4.1, DLSR: A - LSR - DLSR in units of 1/65536 s
		trip := uint32(rtp.NTP(now)>>16) - r.LastSenderReport - r.Delay
		if int32(trip) > 0 {
			out.RoundTrip = time.Duration(trip) * time.Second >> 16
		}
	}
	return out
}
