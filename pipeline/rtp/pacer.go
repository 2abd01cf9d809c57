package rtp

import (
	"time"

	"golang.org/x/sys/unix"
)

// A pacer spreads the bursts of a frame over time. Deadlines are absolute, so that lateness does not add up; a sender
// that is late catches up by halving the pauses, never by longer bursts.
type pacer struct {
	start    time.Duration // of the frame, monotonic
	last     time.Duration // when the last burst was let go
	interval time.Duration // between bursts; 0: no pause
}

// earlyEnough is how much too early a burst may be: to sleep less costs more than it smooths.
const earlyEnough = 20 * time.Microsecond

// begin starts a frame of n bursts that takes span.
func (p *pacer) begin(span time.Duration, n int) {
	p.start, p.interval = monotonic(), span/time.Duration(max(n, 1))
}

// wait returns when burst k is due.
func (p *pacer) wait(k int) {
	if p.interval == 0 {
		return
	}
	due := p.due(k)
	if now := monotonic(); due-now > earlyEnough {
		sleepUntil(due)
	}
	p.last = monotonic()
}

func (p *pacer) due(k int) time.Duration {
	return max(p.start+time.Duration(k)*p.interval, p.last+p.interval/2)
}

// monotonic reads the clock that sleepUntil waits on.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail on Linux
	return time.Duration(t.Nano())
}

// sleepUntil blocks the thread: the runtime's own timers are as coarse as a millisecond when it is idle.
func sleepUntil(t time.Duration) {
	ts := unix.NsecToTimespec(int64(t))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}
