// SPDX-License-Identifier: Apache-2.0

// Package bitrate determines the bit rate of an encoder from the reports of receivers: the rate falls when packets are
// lost or a receiver estimates a lower capacity, and slowly rises otherwise.
package bitrate

import (
	"math"
	"sync"
	"time"
)

// How the rate follows the share of lost packets, as in the loss-based controller of draft-ietf-rmcat-gcc §6: it does
// not change while the share is between clean and lossy.
const (
	lossy  = 0.10                   // above this, the rate falls by half the share of lost packets
	clean  = 0.02                   // while any receiver is above this, the rate does not rise
	rise   = 1.05                   // factor by which the rate otherwise rises per second
	settle = 900 * time.Millisecond // minimum time between two decreases: a report, which comes every second or less often, refers to the time before
	rest   = 6 * time.Second        // minimum time between a report of loss and a rise: receivers report every 5 s or more often (RFC 3550 §6.2)
)

const (
	window       = time.Second     // minimum time over which sent bits are counted
	estimateEnds = 6 * time.Second // time after which a receiver's estimate is forgotten
	maxEstimates = 64              // maximum number of estimates
)

// A Control determines the rate of one encoder whose pictures all receivers get, so that the receiver with the worst
// network decides. It is safe for concurrent use.
type Control struct {
	least, most float64

	mu        sync.Mutex
	rate      float64
	at        time.Time // time for which rate was computed
	cut       time.Time // when the rate last fell because of losses
	restUntil time.Time
	estimates map[string]estimate
	sent      sent
}

// sent counts the bits that are sent. A key frame falls into one window, so the lower of two windows is without it.
type sent struct {
	since time.Time // start of the current window
	bits  float64   // bits in the current window so far
	last  float64   // bits per second in the previous window
	older float64   // bits per second in the window before that
}

// lately returns a lower limit of the bits per second that are being sent, or 0 before two windows have passed.
func (s *sent) lately() float64 { return min(s.last, s.older) }

// estimate is a receiver's estimate of its network's capacity in bits per second, made at the time at.
type estimate struct {
	bits float64
	at   time.Time
}

// New returns a Control for rates between two limits in bits per second, which starts with the higher one.
func New(least, most int) *Control {
	return &Control{least: float64(min(least, most)), most: float64(most), rate: float64(most), estimates: map[string]estimate{}}
}

// Lost records the share of packets, 0 to 1, that a receiver has lost since its previous report.
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

// Estimate records a receiver's estimate of its network's capacity in bits per second (REMB,
// draft-alvestrand-rmcat-remb). receiver identifies the receiver. The estimate counts until estimateEnds after now, and
// only while more than that is sent (Sent): receivers estimate little more than what arrives, so with a still scene the
// limit is the scene, not the network. Estimates of more than maxEstimates receivers are ignored.
func (c *Control) Estimate(receiver string, bits float64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.estimates[receiver]; known || len(c.estimates) < maxEstimates {
		c.estimates[receiver] = estimate{bits, now}
	}
}

// Sent records the size of a picture that is sent, in bits.
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

// Bits returns the current rate in bits per second.
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

// advance increases the rate for the time since c.at, except for the part before c.restUntil, and sets c.at to now. The
// lock must be held.
func (c *Control) advance(now time.Time) {
	from := c.at
	if c.at = now; from.Before(c.restUntil) {
		from = c.restUntil
	}
	if c.rate < c.most && now.After(from) {
		c.rate = min(c.rate*math.Pow(rise, now.Sub(from).Seconds()), c.most)
	}
}
