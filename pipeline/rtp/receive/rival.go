// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"fmt"
	"net/netip"
)

// A rival is another sender to the same port with the stream's payload type. A sender that takes over from one that
// ends, or one that is about to end, is no rival: a rival's packets and those of the stream alternate.
type rival struct {
	ssrc  uint32
	from  netip.AddrPort // source of its reports; invalid if there were none
	came  bool
	then  bool // after came, a packet of the stream itself arrived
	again bool // after then, a packet of a rival arrived once more
}

// settle resets the state when the SSRC of the stream changes from old to next. If next was the rival, old becomes the
// rival.
func (r *rival) settle(old, next uint32) {
	if r.came, r.then = false, false; r.ssrc == next {
		r.ssrc, r.from = old, netip.AddrPort{}
	}
}

// packet records a packet with another SSRC than the stream's.
func (r *rival) packet(ssrc uint32) {
	if !r.came || r.ssrc != ssrc {
		*r = rival{ssrc: ssrc, came: true, again: r.again}
	}
	r.again = r.again || r.then
}

// report records the source address of a report if it is the rival's.
func (r *rival) report(ssrc uint32, from netip.AddrPort) {
	if r.came && r.ssrc == ssrc {
		r.from = from
	}
}

// String identifies the rival. It returns "" if there is none.
func (r *rival) String() string {
	switch {
	case !r.again:
		return ""
	case r.from.IsValid():
		return fmt.Sprintf("SSRC %08x, reports from %s", r.ssrc, r.from)
	}
	return fmt.Sprintf("SSRC %08x", r.ssrc)
}
