// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"fmt"
	"net/netip"
)

// A rival is another sender of the stream's payload type, whose packets come to the same port. One that takes over from a sender that
// ends, or is the end of one, is none: its packets and those of the stream come in turn.
type rival struct {
	ssrc  uint32
	from  netip.AddrPort // of its reports; invalid: none came
	came  bool
	then  bool // the stream's own packets came behind that
	again bool // and then the rival's
}

// settle forgets what came before the stream changed hands, from old to next. Where next was the rival, old was.
func (r *rival) settle(old, next uint32) {
	if r.came, r.then = false, false; r.ssrc == next {
		r.ssrc, r.from = old, netip.AddrPort{}
	}
}

// packet takes one of another SSRC than the stream's.
func (r *rival) packet(ssrc uint32) {
	if !r.came || r.ssrc != ssrc {
		*r = rival{ssrc: ssrc, came: true, again: r.again}
	}
	r.again = r.again || r.then
}

// report takes where a report of another SSRC came from.
func (r *rival) report(ssrc uint32, from netip.AddrPort) {
	if r.came && r.ssrc == ssrc {
		r.from = from
	}
}

// String names it; empty: there is none.
func (r *rival) String() string {
	switch {
	case !r.again:
		return ""
	case r.from.IsValid():
		return fmt.Sprintf("SSRC %08x, reports from %s", r.ssrc, r.from)
	}
	return fmt.Sprintf("SSRC %08x", r.ssrc)
}
