// SPDX-License-Identifier: Apache-2.0

// Package flood limits the cost of packets and requests from strangers, so that a flood of them takes little CPU time
// from the frames.
//
// A reader that has used up its share pauses. In the meantime the buffer of its socket, which Small keeps small, fills
// up, and the kernel drops everything else, which costs this process nothing.
package flood

import (
	"sync"
	"time"
)

// A Limit lets a burst of events pass, and after that one more in each interval Every. Its methods may be called
// concurrently.
type Limit struct {
	Burst int
	Every time.Duration

	mu   sync.Mutex
	full time.Time // when a whole burst may pass again
}

// Pause counts an event at now and returns how long the caller must wait before the next one: 0 until the burst is used
// up, then the time until a whole burst is available again. One long pause costs less than many short ones.
func (l *Limit) Pause(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if used := l.add(now); used >= time.Duration(l.Burst)*l.Every {
		return used
	}
	return 0
}

// Allows reports whether an event at now may pass, and counts it if so.
func (l *Limit) Allows(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full.Sub(now) > time.Duration(l.Burst-1)*l.Every {
		return false
	}
	l.add(now)
	return true
}

// add counts an event, and returns the time until a whole burst is available again. The lock must be held.
func (l *Limit) add(now time.Time) time.Duration {
	if l.full.Before(now) {
		l.full = now
	}
	l.full = l.full.Add(l.Every)
	return l.full.Sub(now)
}
