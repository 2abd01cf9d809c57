// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync/atomic"

	"github.com/tegracast/tegracast/tegra"
)

// PinStats are a card's pins: those of now, and what became of others.
type PinStats struct {
	Pins    int64
	Bytes   int64
	Revoked uint64 // pins that were taken away so far, by whoever freed their memory or by the module
}

// pinCount counts pins by their free callbacks, which run once for each, however it ends.
type pinCount struct {
	pins, bytes atomic.Int64
	revoked     atomic.Uint64
}

// add counts a pin from now until its end.
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

// Pins returns the books of the frame memory that cameras and outputs have pinned on this card.
func (c *Card) Pins() PinStats {
	return PinStats{c.pinned.pins.Load(), c.pinned.bytes.Load(), c.pinned.revoked.Load()}
}
