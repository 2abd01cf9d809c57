// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"testing"
	"time"
)

// logAll is Control with logging of everything, as set by a driver.
const logAll = 0xfffe7e

// Transfers to the card and back, into memory of single pages, with blocks of adjacent descriptors that end at 4 KiB
// boundaries.
func TestMemoryMappedLoopback(t *testing.T) {
	h := newHost(t, Loopback).startDevice()
	const n, piece = 150, 300
	want := testPattern(n * piece)
	src, dst := h.alloc(len(want)), h.alloc(len(want))
	h.writeMemory(src, want)
	for _, c := range []struct {
		channel, sgdma uint32
		desc           func(i uint64) desc
	}{
		{0x0000, 0x4000, func(i uint64) desc { return desc{length: piece, src: src + i*piece, dst: i * piece} }},
		{0x1000, 0x5000, func(i uint64) desc { return desc{length: piece, src: i * piece, dst: dst + i*piece} }},
	} {
		ring := h.alloc(8192) + 2048     // the first block ends at the boundary, after 64 descriptors
		adjacent := func(i int) uint32 { // of the block that starts at descriptor i
			if i >= n {
				return 0
			}
			at := ring + uint64(i)*32
			return uint32(min(n-i, int(4096-at%4096)/32, 64)) - 1
		}
		for i := range n {
			x := c.desc(uint64(i))
			x.next, x.adjacent = ring+uint64(i+1)*32, adjacent(i+1)
			if i == n-1 {
				x.control = 1 | 2
			}
			h.writeMemory(ring+uint64(i)*32, x.encode())
		}
		h.first(c.sgdma, ring, adjacent(0))
		h.w(c.channel+4, logAll|1)
		h.idle(c.channel)
		if got := h.r(c.channel + 0x48); got != n {
			t.Errorf("%d descriptors completed, want %d", got, n)
		}
		if got := h.r(c.channel + 0x40); got != 1<<1|1<<2 {
			t.Errorf("status %#x", got)
		}
		if got := h.r(c.channel + 4); got&1 == 0 {
			t.Error("a stopped engine still has Run set")
		}
		h.w(c.channel+0xc, 1)
		h.w(c.channel+4, logAll|1) // again: count and status start over
		h.idle(c.channel)
		if got := h.r(c.channel + 0x48); got != n {
			t.Errorf("second run: %d descriptors completed, want %d", got, n)
		}
	}
	if !bytes.Equal(h.bytes(dst, len(want)), want) {
		t.Error("the copy differs")
	}
	if got := h.d.BARs()[2].Registers.Read32(8); got != uint32(want[8])|uint32(want[9])<<8|uint32(want[10])<<16|
		uint32(want[11])<<24 {
		t.Errorf("bypass BAR reads %#x", got)
	}
}

func TestErrors(t *testing.T) {
	const hole = 0x66_0000_0000
	for name, c := range map[string]struct {
		h2c    bool
		desc   desc
		at     uint64 // of the descriptor; 0: valid memory
		extra  uint32 // control bits
		status uint32
		rule   Rule // also broken
	}{
		"read_error of the host":         {h2c: true, desc: desc{length: 16, src: hole}, status: 1 << 9},
		"write_error of the card":        {h2c: true, desc: desc{length: 16, dst: 65536 - 8}, status: 1 << 14},
		"read_error of the card":         {desc: desc{length: 16, src: 1 << 40}, status: 1 << 9},
		"card address wraps":             {desc: desc{length: 32, src: ^uint64(0) - 15}, status: 1 << 9},
		"magic":                          {desc: desc{length: 16, magic: 0xad4c}, status: 1 << 4, rule: RuleMagic},
		"zero length":                    {h2c: true, status: 1 << 5, rule: RuleLength},
		"desc_error":                     {at: hole, desc: desc{length: 16}, status: 1 << 19},
		"descriptor is not aligned":      {at: 8, desc: desc{length: 16}, status: 1 << 4, rule: RuleDescriptorAddress},
		"fixed address is not aligned":   {h2c: true, desc: desc{length: 16, dst: 4}, extra: 1 << 25, status: 1 << 3, rule: RuleFixedAddress},
		"fixed length is not whole beat": {h2c: true, desc: desc{length: 20}, extra: 1 << 25, status: 1 << 3, rule: RuleFixedAddress},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Loopback).startDevice()
			ring, data := h.alloc(4096), h.alloc(4096)
			channel, sgdma := uint32(0x1000), uint32(0x5000)
			x := c.desc
			if c.h2c {
				channel, sgdma = 0, 0x4000
				if x.src == 0 {
					x.src = data
				}
			} else {
				x.dst = data
			}
			x.control = 1
			h.writeMemory(ring+c.at%hole, x.encode())
			h.first(sgdma, max(ring+c.at, c.at), 0)
			if c.at == hole {
				h.first(sgdma, hole, 0)
			}
			h.w(0x2010, 3)
			h.w(channel+0x90, 0xfffe7c) // not desc_stopped
			h.w(channel+4, logAll|c.extra|1)
			h.idle(channel)
			if got := h.r(channel + 0x40); got != c.status {
				t.Errorf("status %#x, want %#x", got, c.status)
			}
			if got := h.r(channel + 0x48); got != 0 {
				t.Errorf("%d descriptors completed", got)
			}
			if err := h.d.Interrupts().Wait(t.Context(), 0); err != nil {
				t.Error(err)
			}
			h.breaks(c.rule)
			h.w(channel+0x40, c.status)
			if got := h.r(channel + 0x40); got != 0 {
				t.Errorf("W1C left %#x", got)
			}
		})
	}
}

// Errors whose logging Control does not enable do not stop the engine; lost posted writes are never noticed.
func TestErrorsNotLogged(t *testing.T) {
	h := newHost(t, Loopback).startDevice()
	ring, data := h.alloc(4096), h.alloc(4096)
	h.writeMemory(data, []byte("0123456789abcdef"))
	h.list(ring, 0, []desc{{length: 16, src: 1}, {length: 16, src: data, dst: 32, control: 1}})
	h.first(0x4000, ring, 0)
	h.w(0x0004, 1)
	h.idle(0)
	if count, status := h.r(0x48), h.r(0x40); count != 2 || status != 0 {
		t.Errorf("count %d, status %#x", count, status)
	}
	h.list(ring, 0, []desc{{length: 16, src: 32, dst: 1}, {length: 16, src: 32, dst: data + 100, control: 1}})
	h.first(0x5000, ring, 0)
	h.w(0x1004, logAll|1)
	h.idle(0x1000)
	if count, status := h.r(0x1048), h.r(0x1040); count != 2 || status != 2 {
		t.Errorf("count %d, status %#x", count, status)
	}
	if got := h.bytes(data+100, 16); string(got) != "0123456789abcdef" {
		t.Errorf("%q", got)
	}
	if len(h.faults) != 2 {
		t.Errorf("bus faults %v", h.faults)
	}
}

// What lies beyond the 4 KiB boundary of an adjacent block is not fetched the way the driver expects.
func TestAdjacentBlockCrossesBoundary(t *testing.T) {
	h := newHost(t, Loopback).startDevice()
	ring, data := h.alloc(8192)+4096-2*32, h.alloc(4096)
	h.list(ring, 0, []desc{{length: 1, dst: data}, {length: 1, dst: data}, {length: 1, dst: data}, {length: 1, control: 1}})
	h.first(0x5000, ring, 3)
	h.w(0x1004, logAll|1)
	h.idle(0x1000)
	if count, status := h.r(0x1048), h.r(0x1040); count != 2 || status != 1<<4 {
		t.Errorf("count %d, status %#x, want 2 and magic_stopped", count, status)
	}
	h.breaks(RuleBlock)
	h.w(0x6014, 1<<16) // halt, so that the next start has nothing to do yet
	h.w(0x100c, 1)
	h.w(0x1008, 1)
	if count, status := h.r(0x1048), h.r(0x1040); count != 0 || status != 1 {
		t.Errorf("after the rising edge of Run: count %d, status %#x, want 0 and Busy", count, status)
	}
}

func TestFixedAddress(t *testing.T) {
	h := newHost(t, Loopback).startDevice()
	ring, data := h.alloc(4096), h.alloc(4096)
	h.writeMemory(data, testPattern(64))
	h.list(ring, 0, []desc{{length: 64, src: data, dst: 32, control: 1}})
	h.first(0x4000, ring, 0)
	h.w(0x0004, 1<<25|1)
	h.idle(0)
	bypass := h.d.BARs()[2].Registers
	if got := bypass.Read32(32 + 16); got != 0 {
		t.Errorf("the beat after the fixed address is %#x", got)
	}
	h.list(ring, 0, []desc{{length: 48, src: 32, dst: data + 1008, control: 1}})
	h.first(0x5000, ring, 0)
	h.w(0x1004, 1<<25|1)
	h.idle(0x1000)
	if got, want := h.bytes(data+1008, 48), bytes.Repeat(testPattern(64)[48:], 3); !bytes.Equal(got, want) {
		t.Errorf("%x, want the last beat three times, %x", got, want)
	}
}

func TestCreditsAndHalt(t *testing.T) {
	h := newHost(t, Loopback).startDevice()
	const n = 40
	ring, data := h.alloc(4096), h.alloc(4096)
	list := make([]desc, n)
	for i := range list { // a ring of one block: Nxt_adj counts down within it
		list[i] = desc{length: 1, src: uint64(i), dst: data + uint64(i), adjacent: uint32(max(0, n-2-i))}
	}
	list[n-1].adjacent = n - 1
	h.list(ring, ring, list)
	h.first(0x5000, ring, n-1)
	h.w(0x6024, 1<<16)
	h.w(0x1004, logAll|1)
	reach := func(count uint32) {
		t.Helper()
		h.eventually("completed count", func() bool { return h.r(0x1048) >= count })
		time.Sleep(2 * time.Millisecond)
		if got := h.r(0x1048); got != count {
			t.Errorf("%d descriptors completed, %d credited", got, count)
		}
		if got := h.r(0x508c); got != 0 {
			t.Errorf("%d credits remain", got)
		}
	}
	reach(0)
	h.w(0x508c, 7)
	reach(7)
	h.w(0x6014, 1<<16) // halt
	h.w(0x508c, 60)
	time.Sleep(2 * time.Millisecond)
	if count, left := h.r(0x1048), h.r(0x508c); count != 7 || left != 60 {
		t.Errorf("halted: %d completed, %d credits remain", count, left)
	}
	h.w(0x6018, 1<<16)
	reach(67) // past the end of the ring
	if got := h.r(0x1040); got != 1 {
		t.Errorf("status %#x, want Busy alone", got)
	}
	h.w(0x100c, 1)
	h.idle(0x1000)
	if got := h.r(0x1040); got != 1<<6 {
		t.Errorf("status %#x, want idle_stopped", got)
	}
}

func TestPollWriteBack(t *testing.T) {
	for _, c := range []struct {
		control, want uint32
	}{
		{1 << 26, 0}, {1<<26 | 1<<2, 2}, {1 << 2, 0},
	} {
		h := newHost(t, Loopback).startDevice()
		ring, data := h.alloc(4096), h.alloc(4096)
		h.list(ring, 0, []desc{{length: 1, dst: data}, {length: 1, dst: data, control: 2}, {length: 1, dst: data, control: 1}})
		h.first(0x5000, ring, 0)
		h.w(0x1088, uint32(data+64))
		h.w(0x108c, uint32((data+64)>>32))
		h.w(0x1004, c.control|1)
		h.idle(0x1000)
		if got := h.word(data + 64); got != c.want {
			t.Errorf("%+v: write-back %#x, want %#x", c, got, c.want)
		}
		if c.want != 0 { // an error sets bit 31
			h.w(0x100c, 1)
			h.list(ring, 0, []desc{{length: 1, dst: data, control: 2}, {length: 1, magic: 1}})
			h.w(0x1004, c.control|logAll|1)
			h.idle(0x1000)
			if got := h.word(data + 64); got != 1<<31|1 {
				t.Errorf("write-back after an error %#x", got)
			}
			h.breaks(RuleMagic)
		}
	}
}

func TestPerformanceCounters(t *testing.T) {
	clock := NewVirtualClock(time.Unix(1000, 0))
	h := newHost(t, func(b Bus) Config {
		cfg := Loopback(b)
		cfg.Clock = clock
		return cfg
	}).startDevice()
	ring, data := h.alloc(4096), h.alloc(4096)
	h.list(ring, 0, []desc{{length: 100, dst: data}, {length: 16, dst: data, control: 1}})
	h.first(0x5000, ring, 0)
	read := func() (cycles, beats uint64) {
		return uint64(h.r(0x10c8))<<32 | uint64(h.r(0x10c4)), uint64(h.r(0x10d0))<<32 | uint64(h.r(0x10cc))
	}
	h.w(0x6014, 1<<16)
	h.w(0x10c0, 4|1)
	h.w(0x1004, 1)
	clock.Advance(30 * time.Second)
	h.w(0x6018, 1<<16)
	h.idle(0x1000)
	clock.Advance(time.Hour) // Auto: no longer counted
	if cycles, beats := read(); cycles != 30*250e6 || beats != 7+1 {
		t.Errorf("%d cycles, %d beats", cycles, beats)
	}
	h.w(0x10c0, 2)
	if cycles, beats := read(); cycles != 0 || beats != 0 {
		t.Errorf("after Clear: %d cycles, %d beats", cycles, beats)
	}
	if got := h.r(0x10c0); got != 0 {
		t.Errorf("Clear reads back: %#x", got)
	}
	h.w(0x100c, 1)
	h.w(0x10c0, 4)
	h.w(0x1004, 1)
	h.idle(0x1000)
	clock.Advance(6 * time.Hour) // more than 2^42 cycles
	if low, high := h.r(0x10c4), h.r(0x10c8); low != 0xffffffff || high != 0x103ff {
		t.Errorf("full counter: %#x %#x", high, low)
	}
}
