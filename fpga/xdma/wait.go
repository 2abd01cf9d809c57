// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"sync/atomic"
	"time"
)

// Poll mode checks the write-back after pauses that grow from pollFirst to pollMost.
const (
	pollFirst = 20 * time.Microsecond
	pollMost  = time.Millisecond
)

// A waiter waits for a hint that the channel has done something, which is its interrupt or a change of the poll-mode
// write-back, and for the tick of the watchdog, which finds events whose hint was lost. It is used by one goroutine.
type waiter struct {
	c    *channel
	word *uint32 // poll-mode write-back; nil: interrupts are used
	last uint32  // latest value of word

	seen   uint64          // raises of a shared line that were seen
	parent <-chan struct{} // Done of the context that tick was derived from
	tick   context.Context // ends when the next tick is due
	cancel context.CancelFunc

	timer *time.Timer
	doubt time.Duration // if the latest hint found nothing: time after which to check again; otherwise 0
	due   time.Time     // time of the next tick, in poll mode
}

// wait returns true after a hint and false after a tick. With an error, hint has no meaning.
func (w *waiter) wait(ctx context.Context) (hint bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if w.word != nil {
		return w.poll(ctx)
	}
	if w.tick == nil || w.parent != ctx.Done() {
		w.renew(ctx)
	}
	if w.tick.Err() == nil { // otherwise frequent interrupts would delay the tick
		err := w.c.line.wait(w.tick, &w.seen)
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case w.tick.Err() == nil:
			return false, err
		}
	}
	w.renew(ctx)
	return false, nil
}

// renew starts the time until the next tick. Its context is reused for as many waits as fit, so that a frame costs no
// allocation.
func (w *waiter) renew(ctx context.Context) {
	if w.cancel != nil {
		w.cancel()
	}
	w.parent = ctx.Done()
	w.tick, w.cancel = context.WithTimeout(ctx, w.c.dev.cfg.Watchdog)
}

func (w *waiter) poll(ctx context.Context) (hint bool, err error) {
	now := time.Now()
	if w.due.IsZero() || now.Sub(w.due) > w.c.dev.cfg.Watchdog {
		w.due = now.Add(w.c.dev.cfg.Watchdog)
	}
	if w.doubt > 0 && now.Before(w.due) {
		return true, w.sleep(ctx, w.doubt)
	}
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		if word := atomic.LoadUint32(w.word); word != w.last {
			w.last = word
			return true, nil
		}
		now = time.Now()
		if !now.Before(w.due) {
			w.due = now.Add(w.c.dev.cfg.Watchdog)
			return false, nil
		}
		if err := w.sleep(ctx, min(pause, w.due.Sub(now))); err != nil {
			return false, err
		}
	}
}

// confirm records whether the registers confirmed the latest hint. The write-back happens before the status is set, and
// may be a stale one: until the status follows, the registers are checked again after growing pauses.
func (w *waiter) confirm(done bool) {
	switch {
	case done || w.word == nil || w.last == 0:
		w.doubt = 0
	default:
		w.doubt = max(pollFirst, min(2*w.doubt, pollMost))
	}
}

func (w *waiter) sleep(ctx context.Context, d time.Duration) error {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	select {
	case <-w.timer.C:
		return nil
	case <-ctx.Done():
		w.timer.Stop()
		return ctx.Err()
	}
}

// clear resets the write-back of the previous run. The channel must be stopped.
func (w *waiter) clear() {
	if w.word != nil {
		atomic.StoreUint32(w.word, 0)
	}
	w.last, w.doubt = 0, 0
}
