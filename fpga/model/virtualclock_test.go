// SPDX-License-Identifier: Apache-2.0

package model

import (
	"sync"
	"time"
)

// VirtualClock is a clock for tests. It moves when Advance is called. After Free, it jumps to whatever time is waited
// for, so that the device runs as fast as it can.
type VirtualClock struct {
	mu      sync.Mutex
	now     time.Time
	free    bool
	changed chan struct{} // closed when now or free changes
}

// NewVirtualClock returns a clock that stands still at start.
func NewVirtualClock(start time.Time) *VirtualClock {
	return &VirtualClock{now: start, changed: make(chan struct{})}
}

// Now implements Clock.
func (c *VirtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d and wakes the goroutines waiting for it.
func (c *VirtualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.broadcast()
}

// Free lets the clock jump from now on.
func (c *VirtualClock) Free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = true
	c.broadcast()
}

func (c *VirtualClock) broadcast() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Wait implements Clock.
func (c *VirtualClock) Wait(t time.Time, wake <-chan struct{}) bool {
	for {
		c.mu.Lock()
		if c.free && t.After(c.now) {
			c.now = t
			c.broadcast()
		}
		due, changed := !t.After(c.now), c.changed
		c.mu.Unlock()
		if due {
			return true
		}
		select {
		case <-changed:
		case <-wake:
			return false
		}
	}
}
