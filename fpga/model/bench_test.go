// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// flatBus is memory without holes.
type flatBus struct{ mem []byte }

func (b *flatBus) Read(addr uint64, p []byte) error { copy(p, b.mem[addr:]); return nil }

func (b *flatBus) Write(addr uint64, p []byte) error { copy(b.mem[addr:], p); return nil }

// chartDevice streams the test chart without pauses into one slot of 64 KiB segments.
func chartDevice(tb testing.TB) (d *Device, clock *VirtualClock, perFrame uint32) {
	tb.Helper()
	s, err := NewSensor(TestChartSensor())
	if err != nil {
		tb.Fatal(err)
	}
	bus := &flatBus{mem: make([]byte, 8<<20)}
	clock = virtual()
	cfg := Camera(bus, s)
	cfg.Clock = clock
	if d, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	at := uint64(4096)
	for off := 0; off < s.FrameBytes()+fpga.TrailerSize; {
		n := min(64<<10, s.FrameBytes()-off)
		if n == 0 {
			n = fpga.TrailerSize
		}
		next := at + 32
		if off+n == s.FrameBytes()+fpga.TrailerSize {
			next = 4096
		}
		copy(bus.mem[at:], desc{length: uint32(n), dst: 1<<20 + uint64(off), next: next}.encode())
		off, at = off+n, at+32
		perFrame++
	}
	regs := d.BARs()[1].Registers
	regs.Write32(0x5080, 4096)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	regs.Write32(0x1004, logAll|1) // write-backs go to address 0
	d.BARs()[0].Registers.Write32(fpga.CamControl, fpga.CameraRun)
	return d, clock, perFrame
}

// oneFrame advances the clock by one frame period and waits until the frame has arrived.
func oneFrame(regs fpga.Registers, clock *VirtualClock, count uint32) {
	clock.Advance(time.Second / 30)
	for regs.Read32(0x1048) < count {
		time.Sleep(20 * time.Microsecond)
	}
}

func TestCameraAllocations(t *testing.T) {
	d, clock, perFrame := chartDevice(t)
	regs := d.BARs()[1].Registers
	count := uint32(0)
	clock.Advance(time.Second / 30)
	if n := testing.AllocsPerRun(20, func() {
		count += perFrame
		oneFrame(regs, clock, count)
	}); n > 1 { // by the virtual clock's broadcast
		t.Errorf("%v allocations a frame", n)
	}
}

func BenchmarkCamera1080p(b *testing.B) {
	d, clock, perFrame := chartDevice(b)
	regs, count := d.BARs()[1].Registers, uint32(0)
	b.ReportAllocs()
	b.SetBytes(TestChartWidth * TestChartHeight * 2)
	for b.Loop() {
		count += perFrame
		oneFrame(regs, clock, count)
	}
}
