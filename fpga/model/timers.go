// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"slices"
	"time"
)

// timers are actions to be carried out later. Guarded by Device.mu, except for wake.
type timers struct {
	list []timer // sorted by time
	wake chan struct{}
}

type timer struct {
	at     time.Time
	resets uint64 // Device.resets when the timer was set
	do     func()
}

// after has do called, without Device.mu held, when wait has passed by the device's clock, unless the device is reset
// before then. Device.mu must be held.
func (d *Device) after(wait time.Duration, do func()) {
	t := timer{at: d.clock.Now().Add(wait), resets: d.resets, do: do}
	i := len(d.timers.list)
	for i > 0 && d.timers.list[i-1].at.After(t.at) {
		i--
	}
	d.timers.list = slices.Insert(d.timers.list, i, t)
	d.timers.kick()
}

func (t *timers) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// runTimers carries out timers when they are due, until ctx ends.
func (d *Device) runTimers(ctx context.Context) {
	for ctx.Err() == nil {
		d.mu.Lock()
		if len(d.timers.list) == 0 {
			d.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-d.timers.wake:
			}
			continue
		}
		first := d.timers.list[0].at
		d.mu.Unlock()
		if d.clock.Wait(first, d.timers.wake) {
			d.doFirst()
		}
	}
}

// doFirst carries out the first timer if it is due. A timer added in the meantime may have replaced the one that was
// waited for.
func (d *Device) doFirst() {
	d.mu.Lock()
	if len(d.timers.list) == 0 || d.clock.Now().Before(d.timers.list[0].at) {
		d.mu.Unlock()
		return
	}
	t := d.timers.list[0]
	d.timers.list = slices.Delete(d.timers.list, 0, 1)
	valid := t.resets == d.resets
	d.mu.Unlock()
	if valid {
		t.do()
	}
}
