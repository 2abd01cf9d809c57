// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A Report is the latest report of a receiver about the stream (RFC 3550 §6.4.1).
type Report struct {
	Receiver     uint32        `json:"receiver"`      // SSRC
	From         string        `json:"from"`          // address
	At           time.Time     `json:"at"`            // time of arrival
	FractionLost float64       `json:"fraction_lost"` // since the previous report, 0 to 1
	Lost         int32         `json:"lost"`          // total number of lost packets; duplicates reduce it
	Highest      uint32        `json:"highest"`       // highest extended sequence number received
	Jitter       time.Duration `json:"jitter_ns"`
	RoundTrip    time.Duration `json:"round_trip_ns"` // 0 if unknown
}

// maxReports is the maximum number of receivers remembered for a destination.
const maxReports = 16

// hearBurst and hearEvery limit the RTCP packets that are read from a destination (flood.Limit). The limit is far above
// what a receiver sends, which is at most a few per second (RFC 3550 §6.2, RFC 4585 §3.5).
const (
	hearBurst = 16
	hearEvery = 20 * time.Millisecond
)

// hear reads RTCP packets until the socket is closed, as many as the limit allows, and calls listen with each. The
// kernel drops the rest.
func (d *destination) hear(listen func(d *destination, b []byte, from netip.AddrPort, now time.Time)) {
	buf, limit := make([]byte, 2048), flood.Limit{Burst: hearBurst, Every: hearEvery}
	for {
		n, from, err := d.socket.conn.ReadFromUDPAddrPort(buf)
		pause := rtp.ReportInterval // after an unknown error, avoids a busy loop
		switch now := time.Now(); {
		case err == nil:
			listen(d, buf[:n], from, now)
			pause = limit.Pause(now)
		case errors.Is(err, net.ErrClosed):
			return
		}
		if pause > 0 {
			select {
			case <-d.socket.ended:
			case <-time.After(pause):
			}
		}
	}
}

// heardFrom stores and returns the reports about ssrc in an RTCP compound, and reports whether the compound requests a
// key frame. An error means that b is not an RTCP compound.
func (c *counters) heardFrom(b []byte, ssrc uint32, from netip.AddrPort, now time.Time) (reports []Report, lostPicture bool, err error) {
	packets, err := rtcp.Unmarshal(b)
	if err != nil {
		return nil, false, err
	}
	reports = receptions(packets, ssrc, now)
	c.storeReports(reports, from.String())
	return reports, slices.ContainsFunc(packets, func(p rtcp.Packet) bool { return asksKeyFrame(p, ssrc) }), nil
}

// storeReports stores the reports of a receiver.
func (c *counters) storeReports(reports []Report, from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range reports {
		r.From = from
		c.storeReport(r)
	}
}

// asksKeyFrame reports whether p says that a receiver cannot decode the stream's pictures (RFC 4585 §6.3.1, RFC 5104
// §4.3.1).
func asksKeyFrame(p rtcp.Packet, ssrc uint32) bool {
	switch p := p.(type) {
	case *rtcp.PictureLossIndication:
		return p.MediaSSRC == ssrc
	case *rtcp.FullIntraRequest:
		return slices.ContainsFunc(p.FIR, func(e rtcp.FIREntry) bool { return e.SSRC == ssrc })
	}
	return false
}

// storeReport stores r in place of the receiver's previous report, if there is one, or of the oldest report if there
// are too many.
func (c *counters) storeReport(r Report) {
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
