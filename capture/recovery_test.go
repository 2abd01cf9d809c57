// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errFault = errors.New("fault")

// Pauses double up to a bound, and begin again when something was good; without success recovery is given up in time.
func TestRecoveryBacksOffAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good = 12 // the attempt that brings something
		r := recovery{giveUp: 20 * time.Second}
		var pauses []time.Duration
		var last time.Time
		calls := 0
		begin := time.Now()
		err := r.run(t.Context(), func(context.Context) (bool, error) {
			if calls++; calls > 1 {
				pauses = append(pauses, time.Since(last))
			}
			if calls == good {
				begin = time.Now()
			}
			return calls == good, errFault
		}, func(_ context.Context, fault error) bool {
			last = time.Now()
			return !errors.Is(fault, errFault)
		})
		if !errors.Is(err, ErrGivenUp) || !errors.Is(err, errFault) {
			t.Errorf("%v", err)
		}
		if d := time.Since(begin); d <= r.giveUp || d > r.giveUp+lastPause {
			t.Errorf("given up after %v, want %v and a pause at most", d, r.giveUp)
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

// An attempt may follow at once, and is counted all the same: the next pause is longer.
func TestRecoveryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := recovery{giveUp: time.Minute}
		var at []time.Duration
		begin := time.Now()
		err := r.run(ctx, func(context.Context) (bool, error) {
			if at = append(at, time.Since(begin)); len(at) == 4 {
				cancel()
			}
			return false, errFault
		}, func(context.Context, error) bool { return r.attempts == 1 })
		if want := []time.Duration{0, 0, 20 * time.Millisecond, 60 * time.Millisecond}; !errors.Is(err, errFault) || errors.Is(err, ErrGivenUp) || !slices.Equal(at, want) {
			t.Errorf("attempts at %v, want %v; %v", at, want, err)
		}
	})
}

// The end of the context ends a pause, too, and lets nothing be opened again.
func TestRecoveryEndsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		r, calls := recovery{giveUp: time.Minute}, 0
		err := r.run(ctx, func(context.Context) (bool, error) { calls++; return false, errFault }, func(context.Context, error) bool { return false })
		if calls != 1 || !errors.Is(err, errFault) {
			t.Errorf("%d attempts, %v", calls, err)
		}
	})
}
