// SPDX-License-Identifier: Apache-2.0

package send

import (
	"slices"
	"sync"
	"sync/atomic"
)

// counters are what a destination has come to. Others read them while it is sent to.
type counters struct {
	packets, bytes, frames, cut, dropped, refused, errors atomic.Uint64

	head  uint64    // bytes of an RTP header
	since [2]uint64 // packets and bytes when the SSRC changed; of the sender
	mu    sync.Mutex
	last  string // error
	heard []Report
}

func (c *counters) sent(packets, bytes int) {
	c.packets.Add(uint64(packets))
	c.bytes.Add(uint64(bytes))
}

// reported is what sender reports count: packets and their payload with this SSRC (RFC 3550 §6.4.1).
func (c *counters) reported() (packets, octets uint64) {
	packets = c.packets.Load() - c.since[0]
	return packets, c.bytes.Load() - c.since[1] - c.head*packets
}

// restart makes sender reports begin at 0, for a new SSRC.
func (c *counters) restart() { c.since = [2]uint64{c.packets.Load(), c.bytes.Load()} }

// fail notes the last error; "" is none.
func (c *counters) fail(last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = last
}

// stats reads the counters.
func (c *counters) stats() DestinationStats {
	st := DestinationStats{
		Packets: c.packets.Load(), Bytes: c.bytes.Load(), Frames: c.frames.Load(), Cut: c.cut.Load(),
		Dropped: c.dropped.Load(), Refused: c.refused.Load(), Errors: c.errors.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.LastError, st.Reports = c.last, slices.Clone(c.heard)
	return st
}
