// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/pion/sdp/v3"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// clockPattern matches a PTP clock of RFC 7273 §4.3: the profile's version, optionally followed by the grandmaster's
// identity, and that optionally by the domain.
var clockPattern = regexp.MustCompile(`^ptp=IEEE1588-(2002|2008|2019)(:[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){7}(:[0-9]{1,3})?)?$`)

// describeClock adds the meaning of the timestamps (RFC 7273 §4, §5.2): the clock from which they are made, and the
// timestamp of its epoch. It names a PTP clock if one is configured and the timestamps follow it now. Otherwise it names
// the sender's own clock, identified by the MAC address of the interface that sends the packets (ST 2110-10); without
// such an address it says only that the clock is the sender's, and adds no timestamp. It adds nothing if s has no Start,
// because no stream has started.
func describeClock(m *sdp.MediaDescription, s Stream, origin netip.Addr) {
	if s.Start == nil {
		return // no stream has started
	}
	tai, synchronised := s.synchronised()
	switch mac := hardwareAddress(origin); {
	case s.Clock != "" && synchronised:
		m.WithValueAttribute("ts-refclk", s.Clock)
		// The PTP epoch is 1970 in TAI; timestamps are made of UTC, which is behind TAI by the leap seconds.
		m.WithValueAttribute("mediaclk", fmt.Sprintf("direct=%d", s.Start.Timestamp-uint32(tai)*ClockRate))
	case mac != "":
		m.WithValueAttribute("ts-refclk", "localmac="+mac)
		m.WithValueAttribute("mediaclk", fmt.Sprintf("direct=%d", s.Start.Timestamp))
	default:
		m.WithValueAttribute("mediaclk", "sender")
	}
}

// synchronised reports whether the timestamps follow the clock that Clock names: directly, if the camera's clock is
// locked to that of a network adapter, else by way of this machine's clock, of which the kernel has to say so. tai is
// how many seconds TAI is ahead of the scale of the timestamps.
func (s Stream) synchronised() (tai int32, is bool) {
	var r *pipeline.ClockReport
	if s.Reference != nil {
		r = s.Reference()
	}
	if r != nil && r.PTP {
		return int32(r.Ahead.Seconds()), r.State == pipeline.ClockLocked
	}
	tai, is = kernelClock()
	return tai, is && (r == nil || r.State == pipeline.ClockLocked)
}

// kernelClock returns the offset of TAI from UTC in seconds, and whether the kernel's clock is synchronised.
func kernelClock() (tai int32, synchronised bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return 0, false
	}
	return t.Tai, t.Status&unix.STA_UNSYNC == 0
}

// hardwareAddress returns the MAC address of the interface that has the address local, in the notation of RFC 7273
// §4.7, or "" if there is none.
func hardwareAddress(local netip.Addr) string {
	i, err := net.InterfaceByName(udp.InterfaceOf(local))
	if err != nil || len(i.HardwareAddr) != 6 {
		return ""
	}
	return strings.ToUpper(strings.ReplaceAll(i.HardwareAddr.String(), ":", "-"))
}
