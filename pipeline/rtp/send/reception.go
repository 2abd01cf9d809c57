// SPDX-License-Identifier: Apache-2.0

package send

import (
	"time"

	"golang.org/x/sys/unix"
)

// proof is the time without a refusal after which a destination's trains count as received: a host sends about one refusal
// a second, however many packets it gets.
const proof = 3 * time.Second

// A reception reports whether a destination gets whole frames. Unlike the result of the latest train, it does not change
// between the trains of a host without a receiver, which refuses some of them, or refuses one only when the next begins.
type reception struct {
	why    unix.Errno // why a train was lost or refused; 0 if none was
	cut    int        // trains lost in a row
	last   time.Time  // end of the latest whole train
	spoilt bool       // something was refused since the current train has begun
	whole  int        // whole trains since then, during which nothing was refused
	since  time.Time  // end of the first of these
}

// sent records that a train was sent completely.
func (r *reception) sent(now time.Time) {
	r.cut, r.last = 0, now
	if r.spoilt {
		return
	}
	if r.whole++; r.whole == 1 {
		r.since = now
	}
}

// lost records that a train was given up. A network that takes packets too slowly for some frames takes others.
func (r *reception) lost(why unix.Errno, now time.Time) {
	if r.cut++; why != unix.EAGAIN || r.cut > 1 && now.Sub(r.last) >= proof {
		r.refused(why)
	}
}

// refused records that nothing arrives, for the reason why.
func (r *reception) refused(why unix.Errno) { r.why, r.whole = why, 0 }

// trouble returns why the destination gets no whole frames, or 0. After a refusal it takes two whole trains to prove
// that there is a receiver, because the answer to the first one may come late.
func (r *reception) trouble(now time.Time) unix.Errno {
	if r.whole > 1 && now.Sub(r.since) >= proof {
		return 0
	}
	return r.why
}
