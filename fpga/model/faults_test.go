// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// transferHost is a device with block RAM, a virtual clock, and one transfer of four descriptors in each direction.
type transferHost struct {
	*host
	clock    *VirtualClock
	ring     [2]uint64
	src, dst uint64
}

const transferBytes = 4 * 1024

func newTransferHost(t testing.TB, plan FaultPlan) *transferHost {
	t.Helper()
	h := &transferHost{clock: virtual()}
	h.host = newHost(t, func(b Bus) Config {
		cfg := Loopback(b)
		cfg.Clock, cfg.Faults = h.clock, plan
		return cfg
	})
	h.src, h.dst = h.alloc(transferBytes), h.alloc(transferBytes)
	h.writeMemory(h.src, testPattern(transferBytes))
	for dir := range h.ring {
		h.ring[dir] = h.alloc(4096)
		var list []desc
		for off := uint64(0); off < transferBytes; off += 1024 {
			x := desc{length: 1024, src: h.src + off, dst: off, adjacent: uint32(max(0, 2-int(off/1024)))}
			if dir == 1 {
				x.src, x.dst = off, h.dst+off
			}
			list = append(list, x)
		}
		list[3].control = 1 | 2
		h.list(h.ring[dir], 0, list)
	}
	h.startDevice()
	return h
}

// start starts a transfer; channel is 0 or 0x1000.
func (h *transferHost) start(channel uint32) {
	h.t.Helper()
	h.w(channel+0x0c, 1)
	h.first(0x4000+channel, h.ring[channel>>12], 3)
	h.w(0x2010, 3)
	h.w(channel+0x90, 0xfffe7e)
	h.w(channel+0x04, logAll|1)
}

// transfer performs a transfer that must succeed.
func (h *transferHost) transfer(channel uint32) {
	h.t.Helper()
	h.start(channel)
	h.idle(channel)
	if n, status := h.r(channel+0x48), h.r(channel+0x44); n != 4 || status != 1<<1|1<<2 {
		h.t.Errorf("%d descriptors, status %#x", n, status)
	}
}

func (h *host) inject(id FaultID) {
	h.t.Helper()
	if err := h.d.Inject(id); err != nil {
		h.t.Fatal(err)
	}
}

// happened waits until a fault has happened n times.
func (h *host) happened(id FaultID, n uint64) {
	h.t.Helper()
	h.eventually(id.String(), func() bool { return h.d.FaultCounts()[id] == n })
}

// stays checks that a condition holds and continues to hold.
func (h *host) stays(what string, cond func() bool) {
	h.t.Helper()
	for range 20 {
		if !cond() {
			h.t.Fatalf("not so: %s; C2H status %#x count %d", what, h.r(0x1040), h.r(0x1048))
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// tick advances the clock in small steps, so that every waiting goroutine sees each of them.
func tick(c *VirtualClock, d time.Duration) {
	for range d / (250 * time.Microsecond) {
		c.Advance(250 * time.Microsecond)
		time.Sleep(200 * time.Microsecond)
	}
}

func TestF1Transfer(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	for n, channel := range []uint32{0, 0x1000} {
		h.inject(F1)
		h.start(channel)
		h.happened(F1, uint64(n+1))
		h.clock.Advance(time.Hour)
		h.stays("hanging", func() bool {
			return h.r(channel+0x40) == 1 && h.r(channel+0x48) < 4 && h.r(0x204c) == 0
		})
		h.w(channel+0x0c, 1)
		h.idle(channel)
		h.transfer(channel)
	}
	if got := h.bytes(h.dst, transferBytes); !bytes.Equal(got, testPattern(transferBytes)) {
		t.Error("the transfers after the fault are wrong")
	}
}

func TestF2Transfer(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	h.transfer(0)
	h.inject(F2)
	h.start(0x1000)
	h.happened(F2, 1)
	h.stays("complete, and busy", func() bool { return h.r(0x1040) == 1|1<<1|1<<2 && h.r(0x1048) == 4 })
	h.w(0x100c, 1)
	tick(h.clock, time.Millisecond)
	h.writeMemory(h.dst, make([]byte, transferBytes)) // as if the memory had a new user now
	tick(h.clock, 6*time.Millisecond)
	if bytes.Equal(h.bytes(h.dst, transferBytes), make([]byte, transferBytes)) {
		t.Error("nothing was written after Run was cleared")
	}
	h.unmap(h.dst)
	before := len(h.refused())
	for range 40 {
		tick(h.clock, time.Millisecond)
	}
	h.idle(0x1000)
	t.Logf("%d accesses to memory that had been unmapped", len(h.refused())-before)
	if got := h.r(0x1044); got != 1<<1|1<<2 {
		t.Errorf("status %#x", got)
	}
}

func TestF3Transfer(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	h.inject(F3)
	h.start(0x1000)
	h.happened(F3, 1)
	h.w(0x100c, 1)
	h.clock.Advance(time.Hour)
	h.unmap(h.dst)
	h.start(0x1000)
	h.stays("busy and still", func() bool { return h.r(0x1040)&1 == 1 && h.r(0x1048) == 0 && len(h.refused()) == 0 })
	h.d.Reset()
	if got := h.r(0x1040); got != 0 {
		t.Errorf("status after reset %#x", got)
	}
	h.transfer(0)
}

func TestF4(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	fresh := registers(newTransferHost(t, FaultPlan{}).host)
	for n := range uint64(2) {
		if n == 0 {
			h.inject(F4) // at once, because nothing is busy
		} else {
			h.inject(F1)
			h.start(0)
			h.happened(F1, 1)
			h.inject(F4)
			h.start(0x1000)
		}
		h.happened(F4, n+1)
		for _, bar := range h.d.BARs() {
			for _, off := range []uint32{0, 0x40, 0x1040, 0x2000} {
				bar.Registers.Write32(off+4, 0)
				if got := bar.Registers.Read32(off); got != 0xffffffff {
					t.Errorf("BAR %d [%#x] = %#x", bar.Index, off, got)
				}
			}
		}
		if n == 1 && bytes.Equal(h.bytes(h.dst, transferBytes), testPattern(transferBytes)) {
			t.Error("the transfer went on")
		}
		h.clock.Advance(2 * defaultOutage)
		h.stays("gone", func() bool { return h.r(0x1000) == 0xffffffff })
		h.clock.Advance(time.Second)
		h.eventually("link", func() bool { return h.r(0x1000) == 0x1fc10006 })
		if got := registers(h.host); !slices.Equal(got, fresh) {
			t.Error("not in the reset state")
		}
		h.transfer(0)
		h.w(0x000c, 1)
	}
	h.d.mu.Lock()
	h.d.faults.asked[F4], h.d.faults.injected[F4] = 15, 15 // the next one is the sixteenth
	h.d.mu.Unlock()
	h.inject(F4)
	h.clock.Advance(1000 * time.Hour)
	h.d.Reset()
	h.stays("gone for ever", func() bool { return h.r(0x1000) == 0xffffffff })
}

// registers reads all registers except the time counters.
func registers(h *host) (list []uint32) {
	for _, bar := range h.d.BARs()[:2] {
		for off := uint32(0); off < 0x9000; off += 4 {
			if bar.Index == 0 && (off&0xfff == fpga.CamTimeLow || off&0xfff == fpga.CamTimeHigh) {
				continue
			}
			list = append(list, bar.Registers.Read32(off))
		}
	}
	return list
}

func TestF5Transfer(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	h.inject(F5)
	h.start(0x1000)
	h.idle(0x1000)
	if n, status := h.r(0x1048), h.r(0x1044); n >= 4 || status != 1<<4 {
		t.Errorf("%d descriptors, status %#x, want magic_stopped", n, status)
	}
	h.transfer(0x1000)
}

func TestF6Poll(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	wb := h.alloc(64)
	for n, want := range [][]uint32{{0, 4}, {3, 4}, {4, 3, 4}} { // values read there, up to the correct one
		h.writeMemory(wb, make([]byte, 4))
		h.inject(F6)
		h.w(0x1088, uint32(wb))
		h.w(0x108c, uint32(wb>>32))
		h.w(0x100c, 1)
		h.first(0x5000, h.ring[1], 3)
		h.w(0x1004, logAll|1<<26|1)
		h.eventually("desc_stopped", func() bool { return h.r(0x1040)&(1<<1) != 0 })
		h.w(0x100c, 1)
		seen := []uint32{h.word(wb)}
		look := func() {
			if v := h.word(wb); v != seen[len(seen)-1] {
				seen = append(seen, v)
			}
		}
		for range 80 {
			if h.r(0x1040)&1 == 0 {
				break
			}
			tick(h.clock, 250*time.Microsecond)
			time.Sleep(20 * time.Millisecond) // the timers have their own goroutine
			look()
		}
		look()
		if !slices.Equal(seen, want) || h.r(0x1040)&1 != 0 {
			t.Errorf("variant %d: write-back %v, want %v, then Busy = 0; log %v", n, seen, want, h.d.FaultLog())
		}
	}
}

func TestF10Transfer(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	h.inject(F10)
	h.start(0)
	h.idle(0)
	if status := h.r(0x44); status != 1<<9 || len(h.refused()) != 1 {
		t.Errorf("H2C: status %#x, bus faults %v", status, h.refused())
	}
	h.transfer(0)
	h.inject(F10)
	h.transfer(0x1000) // the engine does not notice
	got, want := h.bytes(h.dst, transferBytes), testPattern(transferBytes)
	differ := 0
	for i := range got {
		if got[i] != want[i] {
			differ++
			if got[i] != 0 {
				t.Fatalf("byte %d is %#x, neither right nor stale", i, got[i])
			}
		}
	}
	if differ == 0 || differ > burst || len(h.refused()) != 2 {
		t.Errorf("%d bytes are stale, bus faults %v", differ, h.refused())
	}
}

func TestF11Transfer(t *testing.T) {
	var h *transferHost
	calls := make(chan uint32, 1)
	h = newTransferHost(t, FaultPlan{Revoke: func() {
		calls <- h.r(0x1040)
		h.unmap(h.dst)
	}})
	h.inject(F11)
	h.start(0x1000)
	if status := <-calls; status&1 != 1 {
		t.Errorf("status %#x while memory was revoked: no DMA is in flight", status)
	}
	h.idle(0x1000)
	if len(h.refused()) == 0 {
		t.Error("no write after the revocation")
	}
}

// F12 resets everything, and all work in progress is discarded.
func TestF12Transfer(t *testing.T) {
	fresh := registers(newTransferHost(t, FaultPlan{}).host)
	h := newTransferHost(t, FaultPlan{})
	h.inject(F12) // at once
	h.happened(F12, 1)
	h.inject(F1)
	h.start(0)
	h.happened(F1, 1) // busy
	h.inject(F12)
	h.start(0x1000)
	h.happened(F12, 2)
	if got := registers(h.host); !slices.Equal(got, fresh) {
		t.Error("not in the reset state")
	}
	h.transfer(0)
	h.transfer(0x1000)
}

// Transfers are opportunities, identified by their number: exactly the faults of the plan must happen.
func TestTransferSchedule(t *testing.T) {
	for _, id := range []FaultID{F1, F5, F10, F12} {
		plan := FaultPlan{Seed: 3, Rates: map[FaultID]float64{id: 0.3}}
		h := newTransferHost(t, plan)
		hits := uint64(0)
		for n := uint64(1); n <= 40; n++ {
			h.start(0x1000)
			h.eventually("the end", func() bool { return h.r(0x1040)&1 == 0 || h.d.FaultCounts()[id] > hits })
			if plan.Schedule(id, fpga.C2H, 0, n) {
				hits++
			}
			log := h.d.FaultLog()
			if uint64(len(log)) != hits || plan.Schedule(id, fpga.C2H, 0, n) && log[hits-1].Opportunity != n {
				t.Fatalf("%v, transfer %d: %d hits planned, %v", id, n, hits, log)
			}
			h.w(0x100c, 1)
			h.idle(0x1000)
		}
		if hits < 5 || hits > 20 {
			t.Errorf("%v: %d hits in 40 transfers at rate 0.3", id, hits)
		}
	}
}

// TestWithdraw checks that a fault that was requested and withdrawn does not happen, and that a link lost for ever is
// restored.
func TestWithdraw(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	for range 3 {
		h.inject(F1)
	}
	h.start(0x1000)
	h.happened(F1, 1)
	h.d.Withdraw()
	h.w(0x100c, 1)
	h.idle(0x1000)
	h.transfer(0x1000)
	if n := h.d.FaultCounts()[F1]; n != 1 {
		t.Errorf("F1 has happened %d times", n)
	}
	h.d.mu.Lock()
	h.d.loseLink(0)
	h.d.mu.Unlock()
	h.clock.Advance(time.Hour)
	h.stays("lost", func() bool { return h.r(0x1040) == 0xffffffff })
	h.d.Withdraw()
	h.transfer(0x1000)
}
