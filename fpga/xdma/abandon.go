// SPDX-License-Identifier: Apache-2.0

package xdma

import "errors"

// Abandon frees a ring whose engine does not stop. It is for devices behind an IOMMU alone: closing coherent memory
// unmaps it there, so that whatever the engine still does ends in a fault of the IOMMU, for as long as nobody else gets the
// addresses: the caller fences the function before (tegra.Fencer). The channel can be taken again as soon as it is not busy any more.
func (r *Ring) Abandon() error { return r.feed.abandon() }

// Abandon is Ring.Abandon for the other direction. Slots that are with the device are not given back.
func (r *SendRing) Abandon() error { return r.feed.abandon() }

func (f *feed) abandon() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, s := range f.slots {
		errs = append(errs, s.memory.Close())
	}
	f.slots, f.frames = nil, nil
	errs = append(errs, f.freeMemory())
	// Whoever takes the channel next finds out whether it is still busy.
	if f.state != idle {
		f.state = idle
		f.c.dirty.Store(true)
		f.c.release()
	}
	return errors.Join(errs...)
}
