// SPDX-License-Identifier: Apache-2.0

package send

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// identity is the SSRC of a stream, which another source may happen to use, too (RFC 3550 §8.2).
type identity struct {
	ssrc   atomic.Uint32 // of the trains that are sent
	wanted atomic.Uint32 // for the next frame, since there was a collision; 0: none

	mu        sync.Mutex
	changed   time.Time                    // when there was the last collision
	conflicts map[netip.AddrPort]time.Time // who used an SSRC of ours, and when last
}

const (
	maxConflicts  = 16
	conflictEnds  = 10 * rtp.ReportInterval // after which an address is forgotten (RFC 3550 §8.2)
	collisionRest = 10 * time.Second        // after a collision, so that forged packets do not change the SSRC all the time
)

// collide says that from used the stream's SSRC, and whether the stream takes another one for that. It does not for one that
// has collided before: that is our own packets, in a loop.
func (i *identity) collide(from netip.AddrPort, now time.Time) (fresh uint32, changes bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for a, at := range i.conflicts {
		if now.Sub(at) > conflictEnds {
			delete(i.conflicts, a)
		}
	}
	if _, known := i.conflicts[from]; known {
		i.conflicts[from] = now
		return 0, false
	}
	if len(i.conflicts) == maxConflicts || !i.changed.IsZero() && now.Sub(i.changed) < collisionRest {
		return 0, false
	}
	if i.conflicts == nil {
		i.conflicts = make(map[netip.AddrPort]time.Time)
	}
	i.conflicts[from], i.changed = now, now
	for fresh == 0 || fresh == i.ssrc.Load() {
		fresh = rtp.RandomStart().SSRC
	}
	i.wanted.Store(fresh)
	return fresh, true
}

// next is the SSRC that the next frame is to have, when that is another one than the last frame's.
func (i *identity) next() (ssrc uint32, changes bool) {
	if i.wanted.Load() == 0 {
		return 0, false
	}
	return i.wanted.Swap(0), true
}

// RTCP packet types (RFC 3550 §12.1, RFC 4585 §6.1).
const (
	rtcpSDES = 202
	rtcpBYE  = 203
	rtcpLast = 206
)

// uses says whether ssrc is the source of a packet in an RTCP compound.
func uses(b []byte, ssrc uint32) bool {
	for len(b) >= 8 && b[0]>>6 == 2 {
		kind, sources, n := b[1], 1, 4*(int(binary.BigEndian.Uint16(b[2:]))+1)
		if n > len(b) || kind > rtcpLast {
			return false
		}
		if count := int(b[0] & 31); kind == rtcpBYE || kind == rtcpSDES && count == 0 {
			sources = count
		}
		for i := range min(sources, n/4-1) {
			if binary.BigEndian.Uint32(b[4+4*i:]) == ssrc {
				return true
			}
		}
		b = b[n:]
	}
	return false
}

// listen takes an RTCP compound that came to d at now: reports about the stream, or somebody else who uses its SSRC.
func (x *transmitter) listen(d *destination, b []byte, from netip.AddrPort, now time.Time) {
	ssrc := x.identity.ssrc.Load()
	reports, lostPicture := d.counters.heardFrom(b, ssrc, from, now)
	if x.adaptation.lost(reports); lostPicture {
		x.keyFrame()
	}
	if !uses(b, ssrc) {
		return
	}
	if fresh, changes := x.identity.collide(from, now); changes {
		x.config.Logger.Warn("rtp: another source uses the SSRC of this stream, which takes a new one", "from", from, "ssrc", ssrc, "new", fresh)
	}
}

// adopt returns the destinations that t is for. It ends the stream that had another SSRC than t: with BYE, and with counts that begin
// again (RFC 3550 §6.4.1).
func (x *transmitter) adopt(t *train) []*destination {
	x.mu.Lock()
	defer x.mu.Unlock()
	dests := *x.dests.Load()
	if x.closed {
		return nil
	}
	if len(dests) == 0 || t.SSRC() == x.identity.ssrc.Load() {
		return dests
	}
	for _, d := range dests {
		x.bye(d)
		d.counters.restart()
	}
	x.control.SetSSRC(t.SSRC())
	x.identity.ssrc.Store(t.SSRC())
	return dests
}
