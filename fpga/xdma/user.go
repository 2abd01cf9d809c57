// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"fmt"
)

func checkUser(i int) error {
	if i < 0 || i >= userInterrupts {
		return fmt.Errorf("%w: %d, the core has 0 to %d", ErrUser, i, userInterrupts-1)
	}
	return nil
}

// EnableUser enables user interrupt i, 0 to 15 (PG195, IRQ block user interrupt enable).
func (d *Device) EnableUser(i int) error {
	if err := checkUser(i); err != nil {
		return err
	}
	d.mu.Lock()
	d.user |= 1 << i
	d.mu.Unlock()
	d.writeVectors()
	return d.userEnabled(i)
}

// DisableUser masks user interrupt i.
func (d *Device) DisableUser(i int) error {
	if err := checkUser(i); err != nil {
		return err
	}
	d.mu.Lock()
	d.user &^= 1 << i
	d.mu.Unlock()
	d.regs.Write32(targetIRQ<<12|regUserIntEnableW1C, 1<<i)
	return nil
}

// WaitUser returns nil once user interrupt i has been raised since WaitUser last returned nil for it, or if it is still
// raised although its message was lost. User interrupts are levels, so the caller must clear the source. The error
// wraps ctx's, that of Interrupts.Wait, ErrGone, ErrReset if the core no longer has the interrupt enabled, or ErrUser
// if there is no interrupt i.
func (d *Device) WaitUser(ctx context.Context, i int) error {
	if err := checkUser(i); err != nil {
		return err
	}
	for {
		if raised, err := d.awaitUser(ctx, i); raised || err != nil {
			return err
		}
		if err := d.userEnabled(i); err != nil {
			return err
		}
		switch request := d.regs.Read32(targetIRQ<<12 | regUserRequest); {
		case request == gone:
			return fmt.Errorf("user interrupt %d: %w", i, ErrGone)
		case request>>i&1 == 1:
			return nil
		}
	}
}

// awaitUser waits for the interrupt's message until the watchdog's tick. In poll mode it only waits for the tick.
func (d *Device) awaitUser(ctx context.Context, i int) (raised bool, err error) {
	tick, cancel := context.WithTimeout(ctx, d.cfg.Watchdog)
	defer cancel()
	if d.cfg.Poll {
		<-tick.Done()
		return false, ctx.Err()
	}
	d.unmaskUser(i)
	seen := d.seen[i].Load()
	err = d.userLine(i).wait(tick, &seen)
	d.seen[i].Store(seen)
	switch {
	case err == nil:
		return true, nil
	case tick.Err() != nil:
		return false, ctx.Err()
	}
	return false, fmt.Errorf("user interrupt %d: %w", i, err)
}

// masked reports whether user interrupt i may currently be masked: without poll mode, if its line is shared.
func (d *Device) masked(i int) bool { return !d.cfg.Poll && d.userLine(i).shared }

// userEnabled returns an error if the device has gone, or if the core no longer has the setting that EnableUser has
// written. It ignores the setting if the interrupt may be masked.
func (d *Device) userEnabled(i int) error {
	switch enabled := d.regs.Read32(targetIRQ<<12 | regUserIntEnable); {
	case enabled == gone:
		return fmt.Errorf("user interrupt %d: %w", i, ErrGone)
	case enabled>>i&1 == 0 && !d.masked(i):
		return fmt.Errorf("user interrupt %d: %w: it is not enabled (%#x)", i, ErrReset, enabled)
	}
	return nil
}
