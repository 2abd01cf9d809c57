// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// faultyCamera returns a running camera with credits for some slots, whose first frame is about to have a fault. A
// frame has at least 9 descriptors, so that there is room for the fault.
func faultyCamera(t *testing.T, id FaultID, injections, slots int, change ...func(*Config)) *cameraHost {
	t.Helper()
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 4, 700, change...)
	for range injections {
		c.inject(id)
	}
	c.start(logAll)
	c.credit(slots)
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// expose takes the next frame.
func (c *cameraHost) expose() { c.clock.Advance(10 * time.Millisecond) }

// again restarts the channel, and streams a whole frame.
func (c *cameraHost) again(seq uint64) {
	c.t.Helper()
	c.w(0x100c, 1)
	c.idle(0x1000)
	c.start(logAll)
	c.credit(1)
	c.expose()
	c.eventually("a frame after the fault", func() bool { return c.r(0x1048) == uint32(c.perDsc) })
	c.frame(0, seq)
}

func TestF1Camera(t *testing.T) {
	c := faultyCamera(t, F1, 1, 2)
	c.expose()
	c.happened(F1, 1)
	c.stays("hanging", func() bool { return c.r(0x1040)&^(1<<2) == 1 && c.r(0x1048) < uint32(c.perDsc) })
	c.counters(fpga.CameraCounters{Sequence: 1})
	c.again(1)
	c.counters(fpga.CameraCounters{Sequence: 2, Delivered: 1, Dropped: 1})
}

// The channel is stopped while descriptors wait for the next frame: the slot of that frame is written to until Busy
// clears.
func TestF2Camera(t *testing.T) {
	c := faultyCamera(t, F2, 1, 2)
	c.expose()
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1})
	c.frame(0, 0)
	c.w(0x100c, 1)
	c.happened(F2, 1)
	tick(c.clock, 1500*time.Microsecond)
	if c.r(0x1040)&1 == 0 {
		t.Fatal("not busy")
	}
	first := c.slots[1].segments[0]
	if !bytes.Contains(c.bytes(first.dst, int(first.length)), []byte{poison, poison}) {
		t.Error("nothing was written after Run was cleared")
	}
	c.frame(0, 0) // the complete frame is unchanged
	tick(c.clock, 8*time.Millisecond)
	c.idle(0x1000)
	k, _ := c.cam.Counters()
	c.again(k.Sequence)
}

func TestF3Camera(t *testing.T) {
	c := faultyCamera(t, F3, 1, 2)
	c.expose()
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1})
	c.w(0x100c, 1)
	c.happened(F3, 1)
	c.w(0x1008, 1)
	c.clock.Advance(time.Second)
	c.stays("busy", func() bool { return c.r(0x1040)&1 == 1 && c.r(0x1048) == 0 })
}

func TestF5Camera(t *testing.T) {
	c := faultyCamera(t, F5, 1, 2)
	c.expose()
	c.idle(0x1000)
	if n, status := c.r(0x1048), c.r(0x1040); n >= uint32(c.perDsc) || status&^(1<<2) != 1<<4 {
		t.Errorf("%d descriptors, status %#x, want magic_stopped", n, status)
	}
	c.again(1)
}

// The three variants of a write-back, checked one by one.
func TestF6Camera(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 4, 700)
	c.w(0x1090, 1<<2)
	c.start(logAll)
	c.credit(4)
	_ = c.cam.Start()
	at := func(slot int) (back, length, trailer uint32) {
		a := c.wb + uint64((slot+1)*c.perDsc-1)*32
		return c.word(a), c.word(a + 4), c.word(c.slots[slot].trailer)
	}
	for slot, want := range [][3]uint32{
		{0, 0, fpga.TrailerMagic}, // late: interrupt and data are there
		{0x52b4 << 16, c.slots[1].segments[c.perDsc-2].length, fpga.TrailerMagic},
		{0x52b4<<16 | 1, fpga.TrailerSize, 0}, // before the data
	} {
		c.inject(F6)
		c.expose()
		c.happened(F6, uint64(slot+1))
		if slot < 2 {
			c.eventually("completion", func() bool { return c.r(0x1048) == uint32((slot+1)*c.perDsc) })
		} else {
			c.eventually("write-back", func() bool { back, _, _ := at(slot); return back != 0 })
		}
		back, length, trailer := at(slot)
		if got := [3]uint32{back, length, trailer}; got != want {
			t.Errorf("variant %d: write-back %#x, length %d, trailer %#x, want %#x", slot, back, length, trailer, want)
		}
		_ = c.cam.Stop()
		tick(c.clock, 5*time.Millisecond)
		c.eventually("the right value", func() bool { back, n, _ := at(slot); return back == 0x52b4<<16|1 && n == 128 })
		_ = c.cam.Start()
		c.frame(slot, 0)
	}
}

func TestF8(t *testing.T) {
	frame := func(c *cameraHost) []byte { // returns the contents of all slots, in the order of the descriptors
		var got []byte
		for _, s := range c.slots {
			for _, seg := range s.segments {
				got = append(got, c.bytes(seg.dst, int(c.word(seg.src+4)))...)
			}
			got = append(got, c.bytes(s.trailer, fpga.TrailerSize)...)
		}
		return got
	}
	want := make([]byte, 128*16*2)
	for variant, k := range []fpga.CameraCounters{
		packetShort: {Sequence: 2, Delivered: 1, Lost: 1}, packetUnended: {Sequence: 2, Delivered: 1, Lost: 1}, packetEmpty: {Sequence: 2, Delivered: 2},
	} {
		c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 4, 700)
		c.d.faults.asked[F8], c.d.faults.injected[F8] = uint64(variant), uint64(variant)
		c.inject(F8)
		c.start(logAll)
		c.credit(4)
		_ = c.cam.Start()
		c.expose()
		c.happened(F8, 1)
		c.expose()
		c.counters(k)
		ends := 0
		for i := range c.r(0x1048) {
			ends += int(c.word(c.wb+uint64(i)*32) & 1)
		}
		got, first := frame(c), c.word(c.wb)
		c.sensor.Frame(0, want)
		switch variant {
		case packetShort:
			if whole := bytes.HasPrefix(got, want); whole || ends != 2 {
				t.Errorf("short: %d ends, whole %t", ends, whole)
			}
		case packetUnended:
			if !bytes.HasPrefix(got, want) || ends != 1 {
				t.Errorf("unended: %d ends", ends)
			}
		case packetEmpty:
			if n := c.word(c.wb + 4); first != 0x52b4<<16|1 || n != 0 || ends != 3 || !bytes.HasPrefix(got, want) {
				t.Errorf("empty: write-back %#x, length %d, %d ends", first, n, ends)
			}
		}
	}
}

func TestF9(t *testing.T) {
	c := faultyCamera(t, F9, 2, 1) // its credits are lost
	c.happened(F9, 1)
	c.expose()
	c.stays("no credits", func() bool { return c.r(0x508c) == 0 && c.r(0x1048) == 0 })
	c.credit(1)
	c.eventually("frame", func() bool { return c.r(0x1048) == uint32(c.perDsc) })
	c.frame(0, 0)
	c.w(0x100c, 1)
	c.idle(0x1000)
	c.start(logAll) // the second: the count starts near its wrap
	c.happened(F9, 2)
	if got := c.r(0x1048); got != 0xffffffc0 {
		t.Errorf("count %#x", got)
	}
	for n := range 8 {
		c.credit(1)
		c.expose()
		c.eventually("count", func() bool { return c.r(0x1048) == uint32((n+1)*c.perDsc)-64 })
	}
	if got := c.r(0x1048); got > 1000 {
		t.Errorf("count %#x has not wrapped", got)
	}
}

func TestF10Camera(t *testing.T) {
	c := faultyCamera(t, F10, 1, 2)
	c.expose()
	c.happened(F10, 1)
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1})
	if n := len(c.refused()); n != 1 {
		t.Errorf("bus faults %v", c.refused())
	}
	var got []byte
	for _, s := range c.slots[0].segments {
		got = append(got, c.bytes(s.dst, int(s.length))...)
	}
	tr, err := fpga.ParseTrailer(c.bytes(c.slots[0].trailer, fpga.TrailerSize))
	if err == nil && tr.PixelCRC == fpga.PixelCRC(got) {
		t.Error("the frame is right")
	}
}

func TestF11Camera(t *testing.T) {
	var c *cameraHost
	c = faultyCamera(t, F11, 0, 2, func(cfg *Config) {
		cfg.Faults.Revoke = func() {
			for _, s := range c.slots {
				c.unmap(s.trailer)
			}
		}
	})
	c.inject(F11)
	c.expose()
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1})
	if n := len(c.refused()); n != 1 {
		t.Errorf("bus faults %v, want that of the trailer", c.refused())
	}
}

// F12 strikes while a frame is being sent: it leaves a camera that can be restarted, and the numbers of opportunities
// continue.
func TestF12Camera(t *testing.T) {
	c := faultyCamera(t, F12, 0, 4)
	other := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 4, 700)
	other.first(0x5000, 0, 0)
	fresh := registers(other.host)
	c.expose()
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1})
	c.inject(F12)
	c.expose()
	c.happened(F12, 1)
	if !slices.Equal(registers(c.host), fresh) {
		t.Error("not in the reset state")
	}
	if got := c.d.FaultLog()[0]; got.Opportunity != 1 {
		t.Errorf("%v", got)
	}
	if got := c.cam.Timestamp(); got != 0 {
		t.Errorf("timestamp %d after reset", got)
	}
	c.first(0x5000, c.ring, 0)
	c.start(logAll)
	c.credit(1)
	_ = c.cam.Start()
	c.expose()
	c.eventually("a frame after the reset", func() bool { return c.r(0x1048) == uint32(c.perDsc) })
	c.frame(0, 0)
	c.inject(F5)
	c.credit(1)
	c.expose()
	c.happened(F5, 1)
	if got := c.d.FaultLog()[1]; got.Opportunity != 3 {
		t.Errorf("%v", got)
	}
}

// The log must match the plan's schedule, whatever the machine does, and the counters must add up.
func TestFaultSchedule(t *testing.T) {
	rates := map[FaultID]float64{F6: 0.2, F7: 0.2, F8: 0.1, F9: 0.2, F10: 0.1}
	run := func() (log []FaultEvent, k fpga.CameraCounters) {
		synctest.Test(t, func(t *testing.T) {
			c := newCameraHost(t, smallSensor(t, 128, 16), RealClock(), 3, 700, func(cfg *Config) {
				cfg.Faults = FaultPlan{Seed: 11, Rates: rates}
			})
			c.w(0x2010, 3)
			c.w(0x1090, 1<<2)
			c.start(logAll)
			_ = c.cam.Start()
			for range 300 {
				c.w(0x1098, 1<<2) // toggling the mask always lets a host continue
				c.w(0x1094, 1<<2)
				c.r(0x1044)
				c.w(0x508c, uint32(4*c.perDsc)-c.r(0x508c))
				time.Sleep(10 * time.Millisecond)
			}
			_ = c.cam.Stop()
			time.Sleep(50 * time.Millisecond)
			k, _ = c.cam.Counters()
			log = c.d.FaultLog()
		})
		return log, k
	}
	log, k := run()
	if again, k2 := run(); !slices.Equal(log, again) || k != k2 {
		t.Errorf("the same seed gave two schedules: %d and %d events, %+v and %+v", len(log), len(again), k, k2)
	}
	if k.Sequence != uint64(k.Delivered)+uint64(k.Dropped)+uint64(k.Lost) || k.Sequence < 290 {
		t.Errorf("%+v", k)
	}
	plan := FaultPlan{Seed: 11, Rates: rates}
	for id := range rates {
		var want, got []uint64
		for n := range k.Sequence {
			if plan.Schedule(id, fpga.C2H, 0, n) {
				want = append(want, n)
			}
		}
		for _, e := range log {
			if e.ID == id {
				got = append(got, e.Opportunity)
			}
		}
		if id == F8 && !slices.Equal(got, want) || len(got) < 10 || len(got) > len(want) {
			t.Errorf("%v happened at %v, planned at %v", id, got, want)
		}
	}
	other := FaultPlan{Seed: 12, Rates: rates}
	same := 0
	for n := range uint64(1000) {
		if plan.Schedule(F6, fpga.C2H, 0, n) && other.Schedule(F6, fpga.C2H, 0, n) {
			same++
		}
	}
	if same < 10 || same > 80 {
		t.Errorf("seeds 11 and 12 share %d of about 200 opportunities, want about 40", same)
	}
}
