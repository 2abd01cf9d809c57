// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// Variants of F6, as in FaultID's table. The next three groups are those of F7, F8 and F9.
const (
	writeBackLate = iota
	writeBackStale
	writeBackEarly
)

const (
	interruptLost = iota
	interruptTwice
	interruptLate
	interruptStays
	interruptFaults
)

const (
	packetShort = iota
	packetUnended
	packetEmpty
)

const (
	creditLost = iota
	creditWrap
	creditFaults
)

const (
	wrapDistance   = 64                   // the completed count starts this far below its wrap (F9)
	burst          = 256                  // maximum number of bytes that go astray: the maximum payload
	stray          = 0xf10 << 52          // address bits of a stray burst, beyond what any IOMMU maps
	poison         = 0xf2                 // written by an engine that no longer has data
	slowSteps      = 8                    // pieces that a slow stop moves
	slowPiece      = 64                   // maximum number of bytes of each piece
	longestLink    = 8                    // longest temporary link loss (F4), in frame periods
	defaultOutage  = time.Second / 30     // used instead of a frame period if there is no camera
	revocationWait = 2 * time.Millisecond // how long the engine waits at most for FaultPlan.Revoke (F11)
)

// faultyState is the state of an engine's faults. Guarded by Device.mu.
type faultyState struct {
	armed        [faultIDs]armed
	hung         bool          // F1: no progress until Run is cleared
	slow         time.Duration // F2: if not 0, for how long the engine lingers, now or when Run falls
	stuck        bool          // F3: Busy stays set until the device is reset
	writeBacks   int           // F6: number of pending write-backs
	requestStays bool          // F7: the interrupt request stays
}

// holdsBusy reports whether a fault keeps Busy set even if the engine has nothing to do.
func (e *engine) holdsBusy() bool { return e.slow > 0 || e.stuck || e.writeBacks > 0 }

// opportunity returns the number of the first frame or transfer of a run that starts now.
func (e *engine) opportunity() uint64 {
	switch c := e.source.(type) {
	case *camera:
		return c.frames
	case *designCamera:
		return c.packets
	}
	if e.frames != nil {
		return e.frames.packets
	}
	return e.starts
}

// framed reports whether a camera feeds the channel, so that frames begin by themselves.
func (e *engine) framed() bool {
	switch e.source.(type) {
	case *camera, *designCamera:
		return true
	}
	return false
}

// firstCount returns the completed count at the rising edge of Run.
func (e *engine) firstCount() uint32 {
	if !e.stream || !e.d.faults.on.Load() {
		return 0
	}
	e.armOne(F9, e.opportunity(), true)
	if a := e.armed[F9]; !a.on || a.variant(creditFaults) != creditWrap {
		return 0
	}
	e.fire(F9, "completed count begins near its wrap")
	return -wrapDistance & 0xffffffff
}

// due reports whether faults that wait for an occasion may happen: on a channel that a camera feeds, only from
// FaultPlan.At on. Device.mu must be held.
func (e *engine) due() bool {
	return !e.framed() || e.work.moved >= e.d.cfg.Faults.At
}

// losesCredits reports whether a write of credits is lost. If so, it disarms and logs the fault (see fire).
func (e *engine) losesCredits() bool {
	if a := e.armed[F9]; !a.on || e.stream && a.variant(creditFaults) != creditLost || !e.due() {
		return false
	}
	_, hit := e.fire(F9, "a write of credits lost")
	return hit
}

// beginUnit makes the frame or transfer that the engine is starting an opportunity. size is its length in bytes, or 0
// if the device does not know it. It is called on the engine's goroutine with Device.mu held.
func (e *engine) beginUnit(number uint64, size int) {
	w := &e.work
	w.moved, w.index, w.reached = 0, 0, false
	w.strikeAt, w.strikeIn = -1, -1
	if !e.d.faults.on.Load() || !e.arm(number) {
		return
	}
	place := e.d.cfg.Faults.hash(uint64(faultIDs), uint64(e.dir), uint64(e.channel), number)
	switch {
	case size > 2*BeatBytes:
		w.strikeAt = e.d.cfg.Faults.place(place, size)
	case e.frames != nil:
		w.strikeIn = 0
	default:
		w.strikeIn = int(place % uint64(w.adjacent+1))
	}
}

// strike makes the faults within an opportunity happen when their place is reached. It reports whether the engine must
// check again what to do.
func (e *engine) strike(ctx context.Context, c *descriptor) bool {
	w := &e.work
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if w.filled == 0 && w.index == w.strikeIn {
		w.strikeIn, w.strikeAt, w.reached = -1, w.moved+c.length/2&^(BeatBytes-1), true
	}
	w.reached = w.reached || w.strikeAt >= 0 && w.moved >= w.strikeAt
	if w.reached && w.filled == 0 && c.breaks == "" {
		if _, hit := e.fire(F5, "descriptor fetched with a wrong magic"); hit {
			c.breaks = RuleMagic
			return true
		}
	}
	if w.moved != w.strikeAt {
		return false
	}
	w.strikeAt = -1
	if e.hitDevice() {
		return true
	}
	if _, hit := e.fire(F1, "engine hangs"); hit {
		e.hung = true
		return true
	}
	if c.length > 0 {
		_, w.astray = e.fire(F10, "burst to an address that is not mapped")
	}
	if _, hit := e.fire(F11, "memory revoked"); hit {
		e.d.mu.Unlock()
		e.revoke(ctx)
		e.d.mu.Lock()
		return true
	}
	return false
}

// piece returns how many of the next n bytes the engine may move in one piece.
func (e *engine) piece(n int) int {
	w := &e.work
	if w.astray {
		return min(n, burst)
	}
	if w.moved < w.strikeAt {
		return min(n, w.strikeAt-w.moved)
	}
	return n
}

// IsStray reports whether a bus address belongs to a stray burst (F10).
func IsStray(addr uint64) bool { return addr&stray == stray }

// address returns the bus address of the next piece: a, or a stray address if a burst is to go astray.
func (e *engine) address(a uint64) uint64 {
	if e.work.astray {
		e.work.astray = false
		return a | stray
	}
	return a
}

// revoke calls FaultPlan.Revoke, and waits briefly, so that the memory disappears during the DMA.
func (e *engine) revoke(ctx context.Context) {
	var returned atomic.Bool
	e.d.running.Go(func() {
		e.d.cfg.Faults.Revoke()
		returned.Store(true)
		e.kick()
	})
	until := e.d.clock.Now().Add(revocationWait)
	for ctx.Err() == nil && !returned.Load() && e.runs() && !e.d.clock.Wait(until, e.wake) {
	}
}

// runs reports whether Run is set and the device has not been reset.
func (e *engine) runs() bool {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	return e.control&bitRun != 0 && !e.stale()
}

// stale reports whether the device was reset since the goroutine last checked.
func (e *engine) stale() bool { return e.work.resets != e.d.resets }

// pause waits by the device's clock. It returns false if the device ends or is reset.
func (e *engine) pause(ctx context.Context, d time.Duration) bool {
	until := e.d.clock.Now().Add(d)
	for !e.d.clock.Wait(until, e.wake) {
		e.d.mu.Lock()
		stale := e.stale()
		e.d.mu.Unlock()
		if stale || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// linger performs a slow stop: it continues to write (H2C: read) the last descriptor's host memory, from the byte that
// was reached, while Busy stays set. A C2H stream channel writes garbage, because it has no more data; a memory-mapped
// one writes the contents of the block RAM. With a fixed card address nothing is moved.
func (e *engine) linger(ctx context.Context) {
	w, d := &e.work, e.d
	c, from := w.last, w.lastFrom
	d.mu.Lock()
	step, fixed := e.slow/slowSteps, e.control&bitNonInc != 0
	d.mu.Unlock()
	span := c.length - from
	for i := range slowSteps {
		if !e.pause(ctx, step) {
			break
		}
		if k := min(slowPiece, span); k > 0 && !fixed {
			e.trickle(c, from+i*slowPiece%(span-k+1), k)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !e.stale() {
		e.slow = 0
		w.drop()
	}
}

func (e *engine) trickle(c descriptor, off, n int) {
	var b [slowPiece]byte
	d := e.d
	if e.dir == fpga.H2C {
		_ = d.cfg.Bus.Read(c.src+uint64(off), b[:n])
		return
	}
	for i := range b {
		b[i] = poison
	}
	if !e.stream && d.ram.in(c.src+uint64(off), n) {
		d.ram.mu.RLock()
		copy(b[:n], d.ram.bytes[c.src+uint64(off):])
		d.ram.mu.RUnlock()
	}
	_ = d.cfg.Bus.Write(c.dst+uint64(off), b[:n])
}
