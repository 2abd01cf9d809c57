// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"fmt"
	"sync"
)

// Coherent is memory of which CPU and device have the same view, without cache maintenance.
type Coherent struct {
	Bytes    []byte    // as seen by the CPU; not to be used after Close
	Segments []Segment // bus addresses in the order of Bytes

	mu      sync.Mutex
	release func() error // nil after Close
}

// NewCoherent returns the Coherent of a back end. release unmaps and frees the memory; only the first Close calls it.
func NewCoherent(b []byte, segments []Segment, release func() error) *Coherent {
	return &Coherent{Bytes: b, Segments: segments, release: release}
}

// Close takes the memory away from the device and frees it. The engine that uses it must have been stopped before. The
// error of a second Close wraps ErrClosed.
func (c *Coherent) Close() error {
	c.mu.Lock()
	release := c.release
	c.release = nil
	c.mu.Unlock()
	if release == nil {
		return fmt.Errorf("close coherent memory: %w", ErrClosed)
	}
	return release()
}
