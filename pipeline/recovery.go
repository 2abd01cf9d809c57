// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrGivenUp says that a recovery has taken too long.
var ErrGivenUp = errors.New("recovery was given up")

// An Outcome grades an attempt of a Recovery by the time until it failed.
type Outcome uint8

const (
	Fruitless Outcome = iota // nothing was good
	Fleeting                 // something was good, but not for long: the next pause is longer
	Settled                  // it was good for long: the next pause is the first one again
)

// A Recovery keeps something going that faults end: a camera, the engine of an output, an output.
type Recovery struct {
	First, Last time.Duration   // pauses after a fault; they double
	GiveUp      time.Duration   // how long recovery may be fruitless; 0: for ever
	Now         <-chan struct{} // ends a pause and resets its length; nil: nothing does

	Attempts int       // faults since something has settled
	Broken   time.Time // since when nothing has been good
}

// Run calls attempt again and again, until ctx ends or recovery has been fruitless for longer than GiveUp; then the error
// wraps ErrGivenUp, else it is the last one of attempt, which need not be a fault. After a fault letGo gives back what the
// next attempt must open again; it returns true when that one shall follow without a pause.
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

// Repeated faults are logged once a minute; their end is logged when none has come for a while.
const (
	everyMinute = time.Minute
	calmAfter   = 10 * time.Second
)

// A FaultLog says which of the faults that come again and again are logged. Its zero value is ready for use.
type FaultLog struct {
	last     time.Time            // of all faults
	logged   map[string]time.Time // by the kind of fault
	left     int                  // faults that were not logged
	repeated bool                 // the last one was of a kind that had been logged within the minute
}

// Due notes a fault, and reports whether it is to be logged: the first of its kind, and one a minute. left is the number of
// faults since the last one that was.
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

// Calm reports whether the end of the trouble is to be logged: at once, or a while after the last of repeated faults.
func (l *FaultLog) Calm(now time.Time) bool { return !l.repeated || now.Sub(l.last) >= calmAfter }

// Unlogged appends the number of faults that were not logged to the attributes of a log record.
func Unlogged(about []any, left int) []any {
	if left > 0 {
		about = append(about, "faults not logged before", left)
	}
	return about
}
