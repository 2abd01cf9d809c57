// SPDX-License-Identifier: Apache-2.0

package send

import (
	"time"

	"github.com/tegracast/tegracast/pipeline/monotonic"
)

// A pacer spreads the bursts of a frame over time. It follows a schedule instead of counting from the actual wake-ups,
// so that their delays do not add up. Late bursts follow each other without a pause, but at most maxBehind of them; a
// sender that is later than that catches up at twice the rate.
type pacer struct {
	clock    monotonic.Clock
	turn     *turn         // the turn whose thread sleeps
	start    time.Duration // of the frame, by the monotonic clock
	due      time.Duration // scheduled time of the latest burst
	interval time.Duration // between bursts; 0: no pauses
	least    time.Duration // minimum interval between late bursts
}

// maxAhead is the maximum number of bursts that may be handed over early: fq holds at most 100 per socket.
const maxAhead = 64

const (
	earlyEnough = 20 * time.Microsecond // shortest sleep; a shorter one costs more than it smooths
	maxBehind   = 4                     // late bursts that may be sent back to back; a receiver's buffer holds them
)

// now returns the time of the monotonic clock.
func (p *pacer) now() time.Duration { return p.clock.Now() }

// beginFrame starts a frame of n bursts at start, to be sent within span. most is the span of a frame that is not late.
func (p *pacer) beginFrame(start time.Duration, n int, span, most time.Duration) {
	bursts := time.Duration(max(n, 1))
	p.start, p.interval, p.least = start, span/bursts, most/bursts/2
}

// shift moves the schedule so that burst k is not due before at.
func (p *pacer) shift(k int, at time.Duration) {
	p.start = max(p.start, at-time.Duration(k)*p.interval)
}

// next returns the earliest start of a frame at time now: not before the last burst of the previous frame, which the
// kernel may still hold.
func (p *pacer) next(now time.Duration) time.Duration { return max(now, p.due) }

// wait waits until burst k is due, and until other turns have sent the bursts that were due before it.
func (p *pacer) wait(k int) {
	now := p.now()
	if p.interval == 0 {
		p.turn.until(now)
		return
	}
	p.schedule(k, now)
	p.turn.until(p.due)
}

// ahead waits until at most most intervals remain before burst k is due, for a kernel or a connection that takes bursts
// early. It returns the time at which burst k is due. If it has to sleep, it sleeps until most/2 intervals remain.
func (p *pacer) ahead(k, most int) time.Duration {
	now := p.now()
	p.schedule(k, now)
	if early := time.Duration(most) * p.interval; p.due-now > early {
		p.turn.until(p.due - early/2)
	}
	return p.due
}

// schedule computes when burst k is due, at time now. If the schedule is behind, it runs at half the usual interval.
// Therefore if bursts are at most maxBehind/2 intervals late, maxBehind bursts follow each other without a pause.
func (p *pacer) schedule(k int, now time.Duration) {
	p.due = max(p.start+time.Duration(k)*p.interval, p.due+p.least, now-maxBehind/2*p.interval)
}
