// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errFault = errors.New("fault")

// Pauses double up to a limit, and start again after a success. Without success, recovery gives up in time.
func TestRecoveryBacksOffAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good = 12 // the attempt that succeeds
		r := Recovery{First: 10 * time.Millisecond, Last: 2 * time.Second, GiveUp: 20 * time.Second}
		var pauses []time.Duration
		var last time.Time
		calls := 0
		begin := time.Now()
		err := r.Run(t.Context(), func(context.Context) (Outcome, error) {
			if calls++; calls > 1 {
				pauses = append(pauses, time.Since(last))
			}
			if calls == good {
				begin = time.Now()
			}
			if calls == good {
				return Settled, errFault
			}
			return Fruitless, errFault
		}, func(_ context.Context, fault error) bool {
			last = time.Now()
			return !errors.Is(fault, errFault)
		})
		if !errors.Is(err, ErrGivenUp) || !errors.Is(err, errFault) {
			t.Errorf("%v", err)
		}
		if d := time.Since(begin); d <= r.GiveUp || d > r.GiveUp+r.Last {
			t.Errorf("given up after %v, want %v and a pause at most", d, r.GiveUp)
		}
		want := []time.Duration{10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000, 10, 20, 40}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if len(pauses) < len(want) || !slices.Equal(pauses[:len(want)], want) {
			t.Errorf("pauses %v, want %v first", pauses, want)
		}
	})
}

// An attempt may follow at once, but it counts: the next pause is longer.
func TestRecoveryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := Recovery{First: 10 * time.Millisecond, Last: 2 * time.Second, GiveUp: time.Minute}
		var at []time.Duration
		begin := time.Now()
		err := r.Run(ctx, func(context.Context) (Outcome, error) {
			if at = append(at, time.Since(begin)); len(at) == 4 {
				cancel()
			}
			return Fruitless, errFault
		}, func(context.Context, error) bool { return r.Attempts == 1 })
		if want := []time.Duration{0, 0, 20 * time.Millisecond, 60 * time.Millisecond}; !errors.Is(err, errFault) || errors.Is(err, ErrGivenUp) || !slices.Equal(at, want) {
			t.Errorf("attempts at %v, want %v; %v", at, want, err)
		}
	})
}

// The end of the context ends a pause, and no further attempt is made.
func TestRecoveryEndsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		r, calls := Recovery{First: 10 * time.Millisecond, Last: 2 * time.Second, GiveUp: time.Minute}, 0
		err := r.Run(ctx, func(context.Context) (Outcome, error) { calls++; return Fruitless, errFault }, func(context.Context, error) bool { return false })
		if calls != 1 || !errors.Is(err, errFault) {
			t.Errorf("%d attempts, %v", calls, err)
		}
	})
}

// TestRecoveryOfWhatIsGoodForAMoment checks that a part which fails again and again after working for a moment waits
// longer each time, is not given up, and logs one line per minute.
func TestRecoveryOfWhatIsGoodForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := Recovery{First: 10 * time.Millisecond, Last: 2 * time.Second, GiveUp: time.Second}
		var log FaultLog
		var pauses []time.Duration
		faults, lines, told := 0, 0, 0
		err := r.Run(ctx, func(context.Context) (Outcome, error) { return Fleeting, errFault }, func(context.Context, error) bool {
			pauses = append(pauses, r.Pause())
			faults++
			left, due := log.Due("restarting", time.Now())
			if due {
				lines++
				told += left + 1
			}
			if faults > 1 && log.Calm(time.Now()) {
				t.Error("the trouble has ended, it seems")
			}
			return false
		})
		if !errors.Is(err, errFault) || errors.Is(err, ErrGivenUp) {
			t.Error(err)
		}
		if !slices.IsSorted(pauses) || pauses[0] != r.First || pauses[len(pauses)-1] != r.Last {
			t.Errorf("pauses %v", pauses)
		}
		if lines != 60 || faults-told > 30 {
			t.Errorf("%d lines in an hour tell of %d of %d faults", lines, told, faults)
		}
		time.Sleep(time.Minute)
		if !log.Calm(time.Now()) {
			t.Error("the trouble has not ended")
		}
	})
}

// TestRecoveryNow checks that a request ends a pause, and that the next pause is the first one again.
func TestRecoveryNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		now := make(chan struct{}, 1)
		r := Recovery{First: time.Second, Last: time.Hour, Now: now}
		begin := time.Now()
		var at []time.Duration
		time.AfterFunc(4*time.Second, func() { now <- struct{}{} })
		_ = r.Run(ctx, func(context.Context) (Outcome, error) {
			if at = append(at, time.Since(begin)/time.Second); len(at) == 5 {
				cancel()
			}
			return Fruitless, errFault
		}, func(context.Context, error) bool { return false })
		if want := []time.Duration{0, 1, 3, 4, 5}; !slices.Equal(at, want) {
			t.Errorf("attempts at %v s, want %v", at, want)
		}
	})
}
