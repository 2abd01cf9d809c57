// SPDX-License-Identifier: Apache-2.0

package send

import (
	"slices"
	"sync"
	"sync/atomic"
)

// counters are the counters of a destination. They may be read while packets are sent to it.
type counters struct {
	packets, bytes, frames, cut, dropped, refused, errors atomic.Uint64

	head  uint64    // length of an RTP header in bytes
	since [2]uint64 // packets and bytes when the SSRC changed; used by the sender only
	mu    sync.Mutex
	last  string // last error
	heard []Report
}

func (c *counters) sent(packets, bytes int) {
	c.packets.Add(uint64(packets))
	c.bytes.Add(uint64(bytes))
}

// reported returns the counts for sender reports: packets, and bytes of their payload, sent with the current SSRC (RFC
// 3550 §6.4.1).
func (c *counters) reported() (packets, octets uint64) {
	packets = c.packets.Load() - c.since[0]
	return packets, c.bytes.Load() - c.since[1] - c.head*packets
}

// restart restarts the counts of sender reports at 0, for a new SSRC.
func (c *counters) restart() { c.since = [2]uint64{c.packets.Load(), c.bytes.Load()} }

// fail records the last error, or "" for none.
func (c *counters) fail(last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = last
}

// stats returns the counters' values.
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
