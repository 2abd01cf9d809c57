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

// identity is the SSRC of a stream, which may collide with that of another source (RFC 3550 §8.2).
type identity struct {
	ssrc   atomic.Uint32 // SSRC of the trains being sent
	wanted atomic.Uint32 // SSRC of the next frame after a collision; 0: unchanged

	mu        sync.Mutex
	changed   time.Time                    // time of the last change of the SSRC
	conflicts map[netip.AddrPort]time.Time // addresses that used an SSRC of ours, with the time of the latest use
}

const (
	maxConflicts  = 16
	conflictEnds  = 10 * rtp.ReportInterval // time after which an address is forgotten (RFC 3550 §8.2)
	collisionRest = 10 * time.Second        // pause after a collision, so that forged packets cannot change the SSRC all the time
)

// collide records that from used the stream's SSRC, and returns the stream's next SSRC if changes is true. Usually the
// stream changes its SSRC. It does not if from collided within the last conflictEnds, because that means that our own
// packets are looped. Nor does it, and nothing is recorded, within collisionRest of the last change or if maxConflicts
// addresses are recorded.
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

// next returns and clears the new SSRC for the next frame, and reports whether there is one.
func (i *identity) next() (ssrc uint32, changes bool) {
	if i.wanted.Load() == 0 {
		return 0, false
	}
	return i.wanted.Swap(0), true
}

// RTCP packet types (RFC 3550 §12.1, RFC 4585 §6.1); rtcpLast is the highest one that uses examines.
const (
	rtcpSDES = 202
	rtcpBYE  = 203
	rtcpLast = 206
)

// uses reports whether ssrc is the source of a packet in the RTCP compound b.
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

// tellFirst tells a reader that waits for its first train which packet of t comes first, and makes it begin with t. If
// a message must precede the first packet and cannot be queued yet, the reader begins with a later train. The
// transmitter's lock must be held.
func (d *destination) tellFirst(t *train) {
	if !d.start.due {
		return
	}
	header, _ := t.Packet(0)
	first := First{Sequence: binary.BigEndian.Uint16(header[2:]), Timestamp: t.Timestamp()}
	if message := d.start.message; message != nil {
		if d.line.late(t) || !d.line.conn.queue(message(first, true)) {
			return
		}
	}
	d.begin()
	d.start.message, d.start.due = nil, false
	select {
	case d.start.first <- first:
	default: // nobody has read the one before
	}
}

// listen handles an RTCP compound that d received at time now: receiver reports about the stream, requests for a key
// frame, or packets from another source with the stream's SSRC.
func (x *transmitter) listen(d *destination, b []byte, from netip.AddrPort, now time.Time) {
	ssrc := x.identity.ssrc.Load()
	reports, lostPicture, err := d.counters.heardFrom(b, ssrc, from, now)
	if err == nil && d.heard != nil {
		d.heard(from.Addr().Unmap())
	}
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

// adopt returns the destinations to which t is to be sent, or nil if the transmitter is closed. It tells readers that
// begin with t its first packet. If there are destinations and t has a new SSRC, adopt ends the old stream with BYE,
// and restarts the counts of the sender reports (RFC 3550 §6.4.1).
func (x *transmitter) adopt(t *train) []*destination {
	x.mu.Lock()
	defer x.mu.Unlock()
	dests := *x.dests.Load()
	if x.closed {
		return nil
	}
	for _, d := range dests {
		d.tellFirst(t)
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
