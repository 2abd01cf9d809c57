// SPDX-License-Identifier: Apache-2.0

package send

import "time"

// A pacer spreads the bursts of a frame over time. It works on a schedule, not on when the thread really woke, so the
// delay of each wake-up does not add up. Bursts that are late follow each other at once, at most maxBehind of them;
// a sender that is later than that catches up at twice the rate.
type pacer struct {
	clock    clock
	turn     *turn         // whose thread sleeps
	start    time.Duration // of the frame, monotonic
	due      time.Duration // of the burst before, on the schedule
	interval time.Duration // between bursts; 0: no pause
	least    time.Duration // between bursts that are late
}

// maxAhead is how many bursts the kernel may keep: fq takes at most 100 of a socket.
const maxAhead = 64

const (
	earlyEnough = 20 * time.Microsecond // to sleep for less costs more than it smooths
	maxBehind   = 4                     // bursts; with 16 packets each they fit a receiver's default socket buffer
)

// now is the time of the monotonic clock.
func (p *pacer) now() time.Duration { return p.clock.now() }

// begin starts a frame of n bursts at start. It takes span; most is what a frame takes that is not late.
func (p *pacer) begin(start time.Duration, n int, span, most time.Duration) {
	bursts := time.Duration(max(n, 1))
	p.start, p.interval, p.least = start, span/bursts, most/bursts/2
}

// shift moves the schedule so that burst k is due at at, if it was due before.
func (p *pacer) shift(k int, at time.Duration) {
	p.start = max(p.start, at-time.Duration(k)*p.interval)
}

// next is when a frame can start, seen at now: not before the last burst of the one before, which the kernel may still keep.
func (p *pacer) next(now time.Duration) time.Duration { return max(now, p.due) }

// wait returns when burst k is due, and what others have to send that was due before has been sent.
func (p *pacer) wait(k int) {
	now := p.now()
	if p.interval == 0 {
		p.turn.until(now)
		return
	}
	p.schedule(k, now)
	p.turn.until(p.due)
}

// ahead returns when no more than most bursts are due before burst k, for a kernel that keeps them until then, and when
// burst k is due. It sleeps for half of them at a time.
func (p *pacer) ahead(k, most int) time.Duration {
	now := p.now()
	p.schedule(k, now)
	if early := time.Duration(most) * p.interval; p.due-now > early {
		p.turn.until(p.due - early/2)
	}
	return p.due
}

// schedule sets when burst k is due, seen at now. The schedule runs at half the usual interval when it is behind, so of
// bursts that were at most maxBehind/2 intervals late maxBehind follow each other at once.
func (p *pacer) schedule(k int, now time.Duration) {
	p.due = max(p.start+time.Duration(k)*p.interval, p.due+p.least, now-maxBehind/2*p.interval)
}
