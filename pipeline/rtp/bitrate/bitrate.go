// SPDX-License-Identifier: Apache-2.0

// Package bitrate says how many bits a second an encoder may make, by what receivers report: fewer when packets are lost, and slowly more
// again when they are not.
package bitrate

import (
	"math"
	"sync"
	"time"
)

// The shares of lost packets between which the rate stays, and how it follows beyond them, as in the loss-based controller of
// draft-ietf-rmcat-gcc §6.
const (
	lossy  = 0.10                   // above, the rate falls by half of the share that is lost,
	clean  = 0.02                   // and unless all receivers stay below,
	rise   = 1.05                   // it rises by this factor a second
	settle = 900 * time.Millisecond // after a fall, in which reports tell of the time before; they come every second or less often
	rest   = 6 * time.Second        // after a report of loss, in which it does not rise: receivers report every 5 s or more often (RFC 3550 §6.2)
)

const (
	window       = time.Second     // over which what leaves is counted, at least
	estimateEnds = 6 * time.Second // after which a receiver's estimate is forgotten
	maxEstimates = 64              // that are remembered
)

// A Control is the rate of one encoder, whose pictures all receivers get: the one with the worst network decides. It is safe for
// concurrent use.
type Control struct {
	least, most float64

	mu        sync.Mutex
	rate      float64
	at        time.Time // when rate was true
	cut       time.Time // when it last fell for losses
	restUntil time.Time
	estimates map[string]estimate
	sent      sent
}

// sent is what leaves. A key frame is in one window, so that the lower of two is without it.
type sent struct {
	since time.Time // when the present window began
	bits  float64   // in it
	last  float64   // bits a second in the window before,
	older float64   // and in the one before that
}

// lately is how many bits a second leave at least; 0 before two windows are over.
func (s *sent) lately() float64 { return min(s.last, s.older) }

// estimate is what a receiver says that its network takes.
type estimate struct {
	bits float64
	at   time.Time
}

// New makes a control between two rates, in bits a second, that begins with the higher one.
func New(least, most int) *Control {
	return &Control{least: float64(min(least, most)), most: float64(most), rate: float64(most), estimates: map[string]estimate{}}
}

// Lost takes the share of packets, 0 to 1, that a receiver has lost since its report before.
func (c *Control) Lost(share float64, now time.Time) {
	if share <= clean {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(now)
	c.restUntil = now.Add(rest)
	if share > lossy && now.Sub(c.cut) >= settle {
		c.rate = max(c.rate*(1-min(share, 1)/2), c.least)
		c.cut = now
	}
}

// Estimate takes the bits a second that a receiver says its network takes (REMB, draft-alvestrand-rmcat-remb). receiver names it. It counts
// while more than that is sent (Sent): receivers say little more than what comes, and then a still scene is the limit, not the network.
func (c *Control) Estimate(receiver string, bits float64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.estimates[receiver]; known || len(c.estimates) < maxEstimates {
		c.estimates[receiver] = estimate{bits, now}
	}
}

// Sent takes the bits of a picture that leaves.
func (c *Control) Sent(bits int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.sent
	if s.since.IsZero() {
		s.since = now
	}
	if d := now.Sub(s.since); d >= window {
		s.older, s.last = s.last, s.bits/d.Seconds()
		s.since, s.bits = now, 0
	}
	s.bits += float64(bits)
}

// Bits is the rate of now.
func (c *Control) Bits(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(now)
	for receiver, e := range c.estimates {
		if now.Sub(e.at) > estimateEnds {
			delete(c.estimates, receiver)
			continue
		}
		if e.bits < c.sent.lately() {
			c.rate = max(min(c.rate, e.bits), c.least)
		}
	}
	return int(c.rate)
}

// advance has the rate rise to what it is now. The lock is held.
func (c *Control) advance(now time.Time) {
	from := c.at
	if c.at = now; from.Before(c.restUntil) {
		from = c.restUntil
	}
	if c.rate < c.most && now.After(from) {
		c.rate = min(c.rate*math.Pow(rise, now.Sub(from).Seconds()), c.most)
	}
}
