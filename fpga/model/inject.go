// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"sync/atomic"
	"time"
)

// faultState is the device-wide state of the faults. All of it except on is guarded by Device.mu.
type faultState struct {
	on       atomic.Bool      // a fault may happen
	asked    [faultIDs]uint64 // requested by Inject
	injected [faultIDs]uint64 // of these, those that have been armed or withdrawn
	counts   [faultIDs]uint64 // faults that have happened
	log      []FaultEvent     // at most the latest 2*maxFaultLog
}

// armed is a fault that will happen on an engine; the zero value means that none will.
type armed struct {
	on          bool
	opportunity uint64
	roll        uint64 // variant in the low byte; the rest is random
}

// variant derives a number from 0 to n-1 from the low byte of roll.
func (a armed) variant(n uint64) uint64 { return a.roll & 0xff % n }

// between derives a time of low to high whole milliseconds, both inclusive, from the roll.
func (a armed) between(low, high uint64) time.Duration {
	return time.Duration(low+a.roll>>8%(high-low+1)) * time.Millisecond
}

// Inject makes a fault happen once, at the next opportunity of any channel on which it can happen. If no channel is
// busy and the link is not lost, F4 and F12 happen before Inject returns. It returns an error that wraps ErrFault if id
// is unknown, or is F11 and FaultPlan.Revoke is nil.
func (d *Device) Inject(id FaultID) error {
	if id < F1 || id >= faultIDs {
		return fmt.Errorf("%w: id %d, want F1 to F%d", ErrFault, int(id), faultIDs-1)
	}
	if id == F11 && d.cfg.Faults.Revoke == nil {
		return fmt.Errorf("%w: F11 needs FaultPlan.Revoke, which says how memory is revoked", ErrFault)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.asked[id]++
	d.faults.on.Store(true)
	if id != F4 && id != F12 || d.down.Load() {
		return nil
	}
	for _, e := range d.engines() {
		if e.busy {
			return nil
		}
	}
	e := d.engines()[0]
	e.armed[id] = d.takeInjected(id, e.starts)
	e.hitDevice()
	return nil
}

// Withdraw cancels the faults requested by Inject that have not happened yet, and those of the plan that already wait
// for their occasion. A lost link is restored, with the device in its reset state.
func (d *Device) Withdraw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.injected = d.faults.asked
	for _, e := range d.engines() {
		e.armed = [faultIDs]armed{}
	}
	if d.down.Load() {
		d.reset() // also undoes a write that was in progress when the link was lost
		d.down.Store(false)
	}
}

// takeInjected returns the oldest requested fault of this kind that has not been armed yet, or the zero armed if there
// is none.
func (d *Device) takeInjected(id FaultID, opportunity uint64) armed {
	if d.faults.asked[id] == d.faults.injected[id] {
		return armed{}
	}
	n := d.faults.injected[id]
	d.faults.injected[id]++
	roll := d.cfg.Faults.hash(uint64(id), n)
	return armed{on: true, opportunity: opportunity, roll: roll&^0xff | n&0xff}
}

// arm draws the faults of an opportunity, and reports whether any is armed. Those that had no occasion so far stay
// armed.
func (e *engine) arm(opportunity uint64) (any bool) {
	for id := F1; id < faultIDs; id++ {
		e.armOne(id, opportunity, false)
		any = any || e.armed[id].on
	}
	return any
}

// armOne arms one fault if Inject or the plan requires it, unless it is armed already or makes no sense on the channel.
// start is set if a run starts with this opportunity.
func (e *engine) armOne(id FaultID, opportunity uint64, start bool) {
	if e.armed[id].on || !e.canHave(id) {
		return
	}
	if e.armed[id] = e.d.takeInjected(id, opportunity); e.armed[id].on {
		return
	}
	roll, ok := e.d.cfg.Faults.draw(id, e.dir, e.channel, opportunity)
	a := armed{on: ok, opportunity: opportunity, roll: roll}
	if id != F9 || (a.variant(creditFaults) == creditWrap) == start {
		e.armed[id] = a
	}
}

// canHave reports whether a fault makes sense on the channel with its current settings.
func (e *engine) canHave(id FaultID) bool {
	switch id {
	case F6:
		stream := e.source != nil && e.control&bitNoWriteBack == 0
		return stream || e.control&bitPoll != 0
	case F7:
		return e.mask != 0 && e.d.irq.channelEnable&e.irqBit() != 0
	case F8:
		_, ok := e.source.(*camera)
		return ok
	case F9:
		return e.d.common.creditMode&e.commonBit() != 0
	case F11:
		return e.d.cfg.Faults.Revoke != nil
	}
	return true
}

// fire disarms, logs and returns a fault if it is armed, and reports whether it was; what describes its variants.
func (e *engine) fire(id FaultID, what ...string) (armed, bool) {
	a := e.armed[id]
	if !a.on {
		return a, false
	}
	e.armed[id] = armed{}
	f := &e.d.faults
	f.counts[id]++
	if len(f.log) >= 2*maxFaultLog {
		f.log = append(f.log[:0], f.log[maxFaultLog:]...)
	}
	f.log = append(f.log, FaultEvent{
		ID: id, Direction: e.dir, Channel: e.channel, Opportunity: a.opportunity,
		What: what[a.variant(uint64(len(what)))],
	})
	return a, true
}
