// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

func fourChannels(b Bus) Config {
	return Config{
		Bus: b, H2C: []Interface{MemoryMapped, Stream}, C2H: []Interface{Stream, Stream, MemoryMapped, Stream},
	}
}

func TestResetValues(t *testing.T) {
	h := newHost(t, fourChannels)
	for off, want := range map[uint32]uint32{
		0x0000: 0x1fc00006, 0x0100: 0x1fc08106, 0x0200: 0, // H2C: memory-mapped, stream, none
		0x1000: 0x1fc18006, 0x1100: 0x1fc18106, 0x1200: 0x1fc10206, 0x1300: 0x1fc18306, 0x1400: 0,
		0x2000: 0x1fc20006, 0x3000: 0x1fc30006,
		0x4000: 0x1fc40006, 0x4100: 0x1fc48106, 0x5000: 0x1fc58006, 0x5200: 0x1fc50206, 0x6000: 0x1fc60006,
		0x0004: 0, 0x0040: 0, 0x0048: 0, 0x0090: 0,
		0x004c: 1<<16 | 1<<8 | 64, 0x104c: 1<<16 | 16<<8 | 64,
		0x2004: 0, 0x2010: 0, 0x2040: 0, 0x2044: 0, 0x2048: 0, 0x204c: 0,
		0x3008: 1, 0x300c: 2, 0x3014: 2, 0x3018: 1,
		0x4080: 0, 0x408c: 0, 0x6010: 0, 0x6020: 0,
		0x7000: 0, 0x9000: 0, 0xfffc: 0, 0x8000: 0, 0x8fe0: 0,
	} {
		if got := h.r(off); got != want {
			t.Errorf("[%#x] = %#x, want %#x", off, got, want)
		}
	}
	if got := h.r(BARSize); got != 0xffffffff {
		t.Errorf("beyond the BAR: %#x", got)
	}
}

// Checks registers by access type: what remains after writing all ones, and the effect of W1S and W1C.
func TestAccessTypes(t *testing.T) {
	h := newHost(t, fourChannels)
	for _, c := range []struct {
		name     string
		rw       uint32
		mask     uint32 // bits that exist
		setClear bool   // W1S at +4, W1C at +8
	}{
		{"H2C control without Run", 0x0004, 0x0efffe7e, true},
		{"C2H control without Run", 0x1004, 0x0ef83e7e, true},
		{"H2C interrupt mask", 0x0090, 0x00fffe7e, true},
		{"C2H interrupt mask", 0x1090, 0x00f83e56, true},
		{"user interrupt enable", 0x2004, 0xffff, true},
		{"channel interrupt enable", 0x2010, 0x3f, true},
		{"halt", 0x6010, 0x000f000f, true},
		{"credit mode", 0x6020, 0x000f000f, true},
		{"poll address low", 0x1088, 0xffffffff, false},
		{"poll address high", 0x108c, 0xffffffff, false},
		{"first descriptor low", 0x5080, 0xffffffff, false},
		{"first descriptor high", 0x5084, 0xffffffff, false},
		{"first adjacent", 0x5088, 0x3f, false},
		{"user vectors", 0x208c, 0x1f1f1f1f, false},
		{"channel vectors", 0x20a4, 0x1f1f1f1f, false},
		{"performance control without Clear", 0x10c0, 5, false},
		{"MSI-X table", 0x8004, 0xffffffff, false},
	} {
		run := uint32(0)
		if c.name[4:] == "control without Run" {
			run = 1
		}
		expect := func(what string, want uint32) {
			t.Helper()
			if got := h.r(c.rw); got != want {
				t.Errorf("%s %s: %#x, want %#x", c.name, what, got, want)
			}
		}
		h.w(c.rw, ^run)
		expect("after ones", c.mask)
		if !c.setClear {
			h.w(c.rw, 0)
			expect("after zero", 0)
			continue
		}
		low := c.mask & -c.mask
		h.w(c.rw+8, low)
		expect("after W1C", c.mask&^low)
		h.w(c.rw, 0)
		h.w(c.rw+4, low)
		expect("after W1S", low)
		if got := h.r(c.rw + 4); got != 0 {
			t.Errorf("%s: the W1S alias reads %#x", c.name, got)
		}
		h.w(c.rw, 0)
	}
	before := map[uint32]uint32{}
	readOnly := []uint32{0, 0x48, 0x4c, 0x10c4, 0x2000, 0x2040, 0x2048, 0x3000, 0x3004, 0x3008, 0x3014, 0x4000, 0x8fe0}
	for _, off := range readOnly {
		before[off] = h.r(off)
		h.w(off, 0x5a5a5a5a)
	}
	for _, off := range readOnly {
		if got := h.r(off); got != before[off] {
			t.Errorf("[%#x] is read only and went from %#x to %#x", off, before[off], got)
		}
	}
}

// Checks the maximum number of channels, 4 and 4, each with its own registers (PG195, address map).
func TestEightChannels(t *testing.T) {
	h := newHost(t, func(b Bus) Config {
		mm := []Interface{MemoryMapped, MemoryMapped, MemoryMapped, MemoryMapped}
		return Config{Bus: b, H2C: mm, C2H: mm}
	}).startDevice()
	h.w(0x2010, ^uint32(0))
	if got := h.r(0x2010); got != 0xff {
		t.Errorf("channel interrupt enable %#x, want eight bits", got)
	}
	h.w(0x20a0, 4<<24|3<<16|2<<8|1)
	h.w(0x20a4, 8<<24|7<<16|6<<8|5)
	for i := range uint32(8) {
		channel := i/4<<12 | i%4<<8
		if got, want := h.r(channel), 0x1fc00006|i/4<<16|i%4<<8; got != want {
			t.Errorf("channel %d: identifier %#x, want %#x", i, got, want)
		}
		if got, want := h.r(0x4000+channel), 0x1fc40006|i/4<<16|i%4<<8; got != want {
			t.Errorf("channel %d: SGDMA identifier %#x, want %#x", i, got, want)
		}
		common := uint32(1) << (i%4 + 16*(i/4))
		h.w(0x6024, common)
		h.w(0x408c+channel, 100+i)
		h.w(channel+0x90, 1<<4)
		h.w(channel+0x88, 0x1000+i)
	}
	for i := range uint32(8) {
		channel := i/4<<12 | i%4<<8
		if got := [2]uint32{h.r(0x408c + channel), h.r(channel + 0x88)}; got != [2]uint32{100 + i, 0x1000 + i} {
			t.Errorf("channel %d: credits and poll address %v", i, got)
		}
		h.first(0x4000+channel, h.alloc(32), 0) // a descriptor of zeros
		h.w(channel+0x04, 1<<4|1)
		h.idle(channel)
		h.breaks(RuleMagic)
		if err := h.d.Interrupts().Wait(t.Context(), int(1+i)); err != nil {
			t.Error(err)
		}
		if got := h.r(0x204c); got != 1<<i {
			t.Errorf("channel %d: pending %#x", i, got)
		}
		h.r(channel + 0x44)
	}
}

func TestCreditRegister(t *testing.T) {
	h := newHost(t, Loopback)
	const credits, mode = 0x508c, 0x6020
	h.w(credits, 5)
	if got := h.r(credits); got != 0 {
		t.Errorf("credits without credit mode: %d", got)
	}
	h.w(mode+4, 1<<16)
	h.w(credits, 1000)
	h.w(credits, 23)
	if got := h.r(credits); got != 1023 {
		t.Errorf("1000 + 23 = %d", got)
	}
	h.w(credits, 2) // ten bits
	if got := h.r(credits); got != 1 {
		t.Errorf("1023 + 2 = %d in ten bits", got)
	}
	h.breaks(RuleCredits)
	h.w(0x1004, 1)
	if got := h.r(credits); got != 1 {
		t.Errorf("the rising edge of Run left %d", got)
	}
	h.w(0x100c, 1)
	if got := h.r(credits); got != 0 {
		t.Errorf("the falling edge of Run left %d", got)
	}
	h.w(credits, 7)
	h.w(mode+8, 1<<16)
	if got := h.r(credits); got != 0 {
		t.Errorf("leaving credit mode left %d", got)
	}
}

func TestInterruptRouting(t *testing.T) {
	h := newHost(t, fourChannels).startDevice()
	const engine = 0x1300 // C2H 3: bit 2 + 3
	h.w(0x20a4, 9<<8)     // channel 5 is the second field of A4
	h.w(engine+0x90, 1<<4)
	h.w(engine+0x04, 1<<4|1) // descriptor address 0 is unmapped; the error is not logged
	h.idle(engine)
	h.w(engine+0x0c, 1)
	bad := h.alloc(32)
	h.first(0x5300, bad, 0)
	h.w(engine+0x08, 1) // a descriptor of zeros: magic_stopped
	h.idle(engine)
	h.breaks(RuleMagic)
	if got := h.r(engine + 0x40); got != 1<<4 {
		t.Fatalf("status %#x", got)
	}
	for off, want := range map[uint32]uint32{0x204c: 1 << 5, 0x2044: 0} {
		if got := h.r(off); got != want {
			t.Errorf("[%#x] = %#x, want %#x", off, got, want)
		}
	}
	irq := h.d.Interrupts()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := irq.Wait(ctx, 9); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a message although the channel is not enabled: %v", err)
	}
	if h.d.Line() {
		t.Error("the line is asserted although the channel is not enabled")
	}
	h.w(0x2010, 1<<5) // the cause is still present, so the request rises
	if got := h.r(0x2044); got != 1<<5 || !h.d.Line() {
		t.Errorf("request %#x, line %v", got, h.d.Line())
	}
	if err := irq.Wait(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	h.w(0x2048, 1<<5)
	h.w(0x204c, 1<<5)
	again, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := irq.Wait(again, 9); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second message although the request did not rise: %v", err)
	}
	if got := h.r(0x204c); got != 1<<5 {
		t.Errorf("pending was cleared elsewhere than at its source: %#x", got)
	}
	if got := h.r(engine + 0x44); got != 1<<4 {
		t.Errorf("read-clear status gives %#x", got)
	}
	for _, off := range []uint32{0x2044, 0x204c, engine + 0x40} {
		if got := h.r(off); got != 0 {
			t.Errorf("[%#x] = %#x after the status was cleared", off, got)
		}
	}
	if h.d.Line() {
		t.Error("the line stays asserted after the status was cleared")
	}
	for _, vector := range []int{-1, 32} {
		if err := irq.Wait(t.Context(), vector); err == nil {
			t.Errorf("vector %d: no error", vector)
		}
	}
}

func TestMaskedVector(t *testing.T) {
	h := newHost(t, Loopback).startDevice()
	h.first(0x5000, h.alloc(32), 0)
	h.w(0x20a0, 3<<8)
	h.w(0x2010, 2)
	h.w(0x1090, 1<<4)
	h.w(0x803c, 1) // mask vector 3
	h.w(0x1004, 1<<4|1)
	h.idle(0x1000)
	h.breaks(RuleMagic)
	if got := h.r(0x8fe0); got != 1<<3 {
		t.Errorf("pending bits %#x", got)
	}
	h.w(0x803c, 0)
	if got := h.r(0x8fe0); got != 0 {
		t.Errorf("pending bits %#x after unmasking", got)
	}
	if err := h.d.Interrupts().Wait(t.Context(), 3); err != nil {
		t.Error(err)
	}
}

func TestGone(t *testing.T) {
	h := newHost(t, Loopback)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	h.w(0x2010, 3)
	for _, bar := range h.d.BARs() {
		if got := bar.Registers.Read32(0); got != 0xffffffff {
			t.Errorf("BAR %d reads %#x", bar.Index, got)
		}
	}
	if err := h.d.Run(ctx); !errors.Is(err, ErrRan) {
		t.Errorf("second run: %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	one, mm := []Interface{Stream}, []Interface{MemoryMapped}
	sensor := smallSensor(t, 64, 2)
	for name, cfg := range map[string]Config{
		"no bus":       {H2C: one, C2H: one},
		"no H2C":       {Bus: &host{}, C2H: one},
		"five C2H":     {Bus: &host{}, H2C: one, C2H: make([]Interface, 5)},
		"kind":         {Bus: &host{}, H2C: []Interface{7}, C2H: one},
		"RAM":          {Bus: &host{}, H2C: one, C2H: one, RAM: 100},
		"sensor on MM": {Bus: &host{}, H2C: one, C2H: mm, Sensors: []*Sensor{sensor}},
		"two sensors":  {Bus: &host{}, H2C: one, C2H: one, Sensors: []*Sensor{sensor, sensor}},
		"nil sensor":   {Bus: &host{}, H2C: one, C2H: one, Sensors: []*Sensor{nil}},
		"sink on MM":   {Bus: &host{}, H2C: mm, C2H: one, Sinks: map[int]SinkConfig{0: {}}},
		"sink 1":       {Bus: &host{}, H2C: one, C2H: one, Sinks: map[int]SinkConfig{1: {}}},
		"sink's rate":  {Bus: &host{}, H2C: one, C2H: one, Sinks: map[int]SinkConfig{0: {Rate: -1}}},
		"clock":        {Bus: &host{}, H2C: one, C2H: one, ClockPPM: 1e6},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// busyDevice has everything: cameras, sinks, block RAM, and channels in both directions.
func busyDevice(t testing.TB, plan FaultPlan) *host {
	plan.Revoke = func() {}
	return newHost(t, func(b Bus) Config {
		return Config{
			Bus: b, H2C: []Interface{MemoryMapped, Stream, Stream}, C2H: []Interface{Stream, Stream, MemoryMapped, Stream},
			Sensors: []*Sensor{smallSensor(t, 64, 4), smallSensor(t, 64, 2)},
			Sinks:   map[int]SinkConfig{2: {Rate: 1 << 20}}, Faults: plan,
		}
	}).startDevice()
}

// Random writes while the device runs must not cause a panic, nor change the identifiers.
func TestRandomWrites(t *testing.T) {
	fuzzRegisters(t, busyDevice(t, FaultPlan{}), rand.New(rand.NewPCG(1, 2)), 20000)
	fuzzRegisters(t, busyDevice(t, randomPlan(rand.New(rand.NewPCG(3, 4)))), rand.New(rand.NewPCG(5, 6)), 20000)
}

// randomPlan contains all faults, some at high rates.
func randomPlan(rng *rand.Rand) FaultPlan {
	plan := FaultPlan{Seed: rng.Uint64(), Rates: map[FaultID]float64{}}
	for _, id := range FaultIDs() {
		plan.Rates[id] = rng.Float64() * rng.Float64()
	}
	return plan
}

// fuzzRegisters prefers existing registers and readable descriptors.
func fuzzRegisters(t *testing.T, h *host, rng *rand.Rand, n int) {
	ring := h.alloc(64 * 32)
	h.mu.Lock()
	h.lawless = true
	h.mu.Unlock()
	bars := h.d.BARs()
	for range n {
		bar := bars[rng.IntN(3)]
		off := rng.Uint32() % BARSize
		v := rng.Uint32()
		switch rng.IntN(6) {
		case 0: // a channel's control register
			bar, off = bars[1], uint32(rng.IntN(2))<<12|uint32(rng.IntN(4))<<8|4
		case 1: // its first descriptor
			sgdma := uint32(4+rng.IntN(2))<<12 | uint32(rng.IntN(4))<<8
			h.first(sgdma, ring+uint64(rng.IntN(64))*32, rng.Uint32()&3)
			h.w(sgdma+0x8c, rng.Uint32())
		case 2: // a descriptor
			h.writeMemory(ring+uint64(rng.IntN(64))*32, desc{
				control: rng.Uint32() & 0x13, adjacent: rng.Uint32() & 3, length: rng.Uint32() & 0x3ff,
				src: ring + rng.Uint64()%4096, dst: ring + rng.Uint64()%4096, next: ring + rng.Uint64()%64*32,
			}.encode())
		case 3: // a descriptor of random bytes, sometimes with the correct magic
			h.writeMemory(ring+uint64(rng.IntN(64))*32, desc{
				magic: 0xad4b ^ rng.Uint32()&rng.Uint32()&rng.Uint32()&1, control: rng.Uint32() & 0xff, adjacent: rng.Uint32() & 0x3f,
				length: rng.Uint32(), src: rng.Uint64(), dst: rng.Uint64(), next: rng.Uint64(),
			}.encode())
		case 4: // a camera block
			bar, off = bars[0], rng.Uint32()&0x10ff
		case 5:
			_ = h.d.Inject(FaultID(rng.IntN(200))) // mostly invalid
		}
		bar.Registers.Write32(off, v)
		bar.Registers.Read32(off)
	}
	for off, want := range map[uint32]uint32{0x0000: 0x1fc00006, 0x1000: 0x1fc18006, 0x2000: 0x1fc20006} {
		if got := h.r(off); got != want && !h.d.down.Load() && got != goneValue {
			t.Errorf("[%#x] = %#x, want %#x", off, got, want)
		}
	}
}

func FuzzRegisters(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Add(uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		plan := FaultPlan{}
		if a%4 != 0 {
			plan = randomPlan(rand.New(rand.NewPCG(b, a)))
		}
		fuzzRegisters(t, busyDevice(t, plan), rand.New(rand.NewPCG(a, b)), 300)
	})
}
