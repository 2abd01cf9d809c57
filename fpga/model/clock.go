// SPDX-License-Identifier: Apache-2.0

package model

import (
	"sync"
	"time"
)

// Clock is the device's time.
type Clock interface {
	Now() time.Time
	// Wait returns true when t has come, or false as soon as something is received from wake.
	Wait(t time.Time, wake <-chan struct{}) bool
}

// RealClock is the machine's monotonic time.
func RealClock() Clock { return &realClock{} }

type realClock struct {
	mu   sync.Mutex
	free []*time.Timer
}

func (*realClock) Now() time.Time { return time.Now() }

func (c *realClock) Wait(t time.Time, wake <-chan struct{}) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	timer := c.timer(d)
	defer c.putBack(timer)
	select {
	case <-timer.C:
		return true
	case <-wake:
		return false
	}
}

func (c *realClock) timer(d time.Duration) *time.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.free)
	if n == 0 {
		return time.NewTimer(d)
	}
	timer := c.free[n-1]
	c.free = c.free[:n-1]
	timer.Reset(d)
	return timer
}

func (c *realClock) putBack(timer *time.Timer) {
	timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, timer)
}
