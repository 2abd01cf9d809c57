// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrGivenUp means that a recovery has taken too long.
var ErrGivenUp = errors.New("recovery was given up")

// An Outcome grades an attempt of a Recovery by how long it worked before it failed.
type Outcome uint8

const (
	Fruitless Outcome = iota // it never worked
	Fleeting                 // it worked, but not for long: the next pause is longer
	Settled                  // it worked for long: the next pause is the first one again
)

// A Recovery restarts something that faults interrupt, such as a camera or an output.
type Recovery struct {
	First, Last time.Duration   // first and longest pause after a fault; pauses double
	GiveUp      time.Duration   // how long recovery may be fruitless; 0 means forever
	Now         <-chan struct{} // ends a pause and resets its length; may be nil

	Attempts int       // faults since the last settled attempt, or since a pause was ended by Now
	Broken   time.Time // start of the current failure
}

// Run calls attempt repeatedly until ctx ends, and then returns attempt's last error, which may be nil. If recovery is
// fruitless for longer than GiveUp, Run returns an error that wraps ErrGivenUp. After each fault letGo releases what
// the next attempt must open again; it returns true if the next attempt should follow without a pause.
func (r *Recovery) Run(
	ctx context.Context, attempt func(context.Context) (Outcome, error), letGo func(ctx context.Context, fault error) (atOnce bool),
) error {
	r.Attempts = 0
	for {
		outcome, err := attempt(ctx)
		if ctx.Err() != nil {
			return err
		}
		if outcome == Settled {
			r.Attempts = 0
		}
		if outcome != Fruitless || r.Attempts == 0 {
			r.Broken = time.Now()
		}
		if tried := time.Since(r.Broken); r.GiveUp > 0 && tried > r.GiveUp {
			return fmt.Errorf("%w after %v and %d attempts: %w", ErrGivenUp, tried.Round(time.Millisecond), r.Attempts, err)
		}
		r.Attempts++
		if letGo(ctx, err) {
			continue
		}
		select {
		case <-time.After(r.Pause()):
		case <-r.Now:
			r.Attempts = 0
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

// Pause returns how long Run waits before the next attempt.
func (r *Recovery) Pause() time.Duration {
	return min(r.First<<min(max(r.Attempts-1, 0), 16), r.Last)
}

// everyMinute is the interval at which repeated faults of a kind are logged. calmAfter is the time without a fault
// after which the end of repeated faults is logged.
const (
	everyMinute = time.Minute
	calmAfter   = 10 * time.Second
)

// A FaultLog decides which of a series of recurring faults are logged. Its zero value is ready for use.
type FaultLog struct {
	last     time.Time            // time of the latest fault of any kind
	logged   map[string]time.Time // time of the latest logged fault, by kind
	left     int                  // unlogged faults since the latest logged one of any kind
	repeated bool                 // a fault came within a minute of a logged one of its kind; no minute without faults since
}

// Due records a fault, and reports whether it should be logged: the first of its kind, and then one per minute. If it
// should, left is the number of unlogged faults since the latest logged one of any kind.
func (l *FaultLog) Due(kind string, now time.Time) (left int, due bool) {
	if l.logged == nil {
		l.logged = map[string]time.Time{}
	}
	at, known := l.logged[kind]
	recent := known && now.Sub(at) < everyMinute
	l.repeated = recent || l.repeated && now.Sub(l.last) < everyMinute
	l.last = now
	if recent {
		l.left++
		return 0, false
	}
	l.logged[kind] = now
	left, l.left = l.left, 0
	return left, true
}

// Calm reports whether the end of the trouble should be logged. It should be logged now, except after repeated faults:
// then only when none has occurred for calmAfter.
func (l *FaultLog) Calm(now time.Time) bool { return !l.repeated || now.Sub(l.last) >= calmAfter }

// Unlogged appends the number of unlogged faults, left, to the attributes of a log record, unless it is 0.
func Unlogged(about []any, left int) []any {
	if left > 0 {
		about = append(about, "earlier faults not logged", left)
	}
	return about
}
