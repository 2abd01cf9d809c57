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

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// clockPattern is a PTP clock of RFC 7273 §4.3: the profile's version, the grandmaster's identity, the domain.
var clockPattern = regexp.MustCompile(`^ptp=IEEE1588-(2002|2008|2019)(:[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){7}(:[0-9]{1,3})?)?$`)

// describeClock adds what the timestamps mean (RFC 7273 §4, §5.2): the clock that they are made from, and the timestamp
// of its epoch. A PTP clock is named when the configuration does and the kernel says that its own is synchronised;
// else it is this machine's, known by the address of the interface that packets leave by, or by none.
func describeClock(m *sdp.MediaDescription, s Stream, origin netip.Addr) {
	if s.Start == nil {
		return // no stream yet
	}
	tai, synchronised := kernelClock()
	switch mac := hardwareAddress(origin); {
	case s.Clock != "" && synchronised:
		m.WithValueAttribute("ts-refclk", s.Clock)
		// The PTP epoch is 1970 in TAI, which the sender's clock, UTC, has behind it by the leap seconds.
		m.WithValueAttribute("mediaclk", fmt.Sprintf("direct=%d", s.Start.Timestamp-uint32(tai)*ClockRate))
	case mac != "":
		m.WithValueAttribute("ts-refclk", "localmac="+mac)
		m.WithValueAttribute("mediaclk", fmt.Sprintf("direct=%d", s.Start.Timestamp))
	default:
		m.WithValueAttribute("mediaclk", "sender")
	}
}

// kernelClock asks for the offset of TAI in seconds, and whether somebody disciplines the clock.
func kernelClock() (tai int32, synchronised bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return 0, false
	}
	return t.Tai, t.Status&unix.STA_UNSYNC == 0
}

// hardwareAddress is that of the interface with a local address, as RFC 7273 §4.7 writes it; "" for none.
func hardwareAddress(local netip.Addr) string {
	i, err := net.InterfaceByName(udp.InterfaceOf(local))
	if err != nil || len(i.HardwareAddr) != 6 {
		return ""
	}
	return strings.ToUpper(strings.ReplaceAll(i.HardwareAddr.String(), ":", "-"))
}
