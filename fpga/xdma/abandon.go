// SPDX-License-Identifier: Apache-2.0

package xdma

import "errors"

// Abandon frees a ring whose engine does not stop. It may only be used behind an IOMMU: there, closing coherent memory
// unmaps it, so that any further access by the engine ends in an IOMMU fault, as long as nobody else is given the
// addresses. Therefore the caller must fence the function first (tegra.Fencer). The channel can be used again once it
// is no longer busy.
func (r *Ring) Abandon() error { return r.feed.abandon() }

// Abandon is Ring.Abandon for the other direction. SendConfig.Done is not called for slots that the device owns.
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
	// The next user of the channel finds out whether it is still busy.
	if f.state != idle {
		f.state = idle
		f.c.dirty.Store(true)
		f.c.release()
	}
	return errors.Join(errs...)
}
