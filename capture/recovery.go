// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"time"
)

// Bounds of recovery.
const (
	firstPause = 10 * time.Millisecond // after the first fault; it doubles
	lastPause  = 2 * time.Second
	giveUp     = 30 * time.Second // how long recovery may take, unless the configuration says otherwise
)

// A recovery keeps something going that faults end.
type recovery struct {
	giveUp   time.Duration
	attempts int       // recoveries since something has been good
	broken   time.Time // since when nothing has been good
}

// run calls attempt again and again, until ctx ends or recovery has been fruitless for longer than giveUp; then the error
// wraps ErrGivenUp, else it is the last one of attempt, which need not be a fault. attempt says whether something was
// good. After a fault letGo gives back what the next attempt must open again; it returns true when that one shall follow
// without a pause.
func (r *recovery) run(
	ctx context.Context, attempt func(context.Context) (progress bool, err error), letGo func(ctx context.Context, fault error) (atOnce bool),
) error {
	r.attempts = 0
	for {
		progress, err := attempt(ctx)
		if ctx.Err() != nil {
			return err
		}
		if progress {
			r.attempts = 0
		}
		if r.attempts == 0 {
			r.broken = time.Now()
		}
		if tried := time.Since(r.broken); tried > r.giveUp {
			return fmt.Errorf("%w after %v and %d attempts: %w", ErrGivenUp, tried.Round(time.Millisecond), r.attempts, err)
		}
		r.attempts++
		if letGo(ctx, err) {
			continue
		}
		select {
		case <-time.After(min(firstPause<<min(r.attempts-1, 16), lastPause)):
		case <-ctx.Done():
			return err
		}
	}
}
