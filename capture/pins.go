// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync/atomic"

	"github.com/tegracast/tegracast/tegra"
)

// PinStats counts a card's current and revoked pins.
type PinStats struct {
	Pins    int64
	Bytes   int64
	Revoked uint64 // pins so far whose memory was taken away for any tegra.Reason but ReasonUnpin
}

// pinCount counts pins by means of their free callbacks, which run exactly once for each pin.
type pinCount struct {
	pins, bytes atomic.Int64
	revoked     atomic.Uint64
}

// add counts a pin until it is unpinned or revoked.
func (n *pinCount) add(p *tegra.Pin) {
	n.pins.Add(1)
	n.bytes.Add(int64(p.Size))
	p.OnFree(func(why tegra.Reason) {
		n.pins.Add(-1)
		n.bytes.Add(-int64(p.Size))
		if why != tegra.ReasonUnpin {
			n.revoked.Add(1)
		}
	})
}

// Pins returns the statistics of the frame memory that cameras and outputs have pinned on this card.
func (c *Card) Pins() PinStats {
	return PinStats{c.pinned.pins.Load(), c.pinned.bytes.Load(), c.pinned.revoked.Load()}
}
