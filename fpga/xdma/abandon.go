package xdma

import "errors"

// Abandon frees a ring whose engine does not stop. It is for devices behind an IOMMU alone: closing coherent memory
// unmaps it there, so that whatever the engine still does ends in a fault of the IOMMU. The channel stays busy for good,
// as far as this Device knows.
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
	return errors.Join(append(errs, f.memory.Close())...)
}
