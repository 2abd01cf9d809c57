// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

func TestForceEOP(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 2, 512)
	c.start(logAll)
	c.cam.ForceEOP() // no packet is open, so nothing happens
	c.w(0x508c, 1)
	_ = c.cam.Start()
	c.clock.Advance(4 * time.Millisecond)
	c.eventually("one descriptor", func() bool { return c.r(0x1048) == 1 })
	c.cam.ForceEOP()
	c.w(0x508c, 1)
	c.eventually("the end", func() bool { return c.r(0x1048) == 2 })
	second := c.slots[0].segments[1]
	if w, n := c.word(second.src), c.word(second.src+4); w != 0x52b4<<16|1 || n != BeatBytes {
		t.Errorf("write-back %#x, %d", w, n)
	}
	c.counters(fpga.CameraCounters{Sequence: 1, Dropped: 1})
	if got := c.cam.Events(); got != fpga.EventDropped|fpga.EventForcedEOP {
		t.Errorf("events %#x", got)
	}
}

func TestTriggered(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 3, 512)
	c.start(logAll)
	c.credit(3)
	cfg := fpga.CameraConfig{Width: 128, Height: 16, Format: c.sensor.Config().Format, Triggered: true, Exposure: 4 * time.Millisecond}
	if err := c.cam.Configure(cfg); err != nil {
		t.Fatal(err)
	}
	c.cam.Trigger() // not started
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	c.clock.Advance(time.Second)
	c.cam.Trigger()
	if c.cam.Status()&fpga.StatusExposing == 0 {
		t.Error("not exposing after a trigger")
	}
	c.cam.Trigger() // too early
	c.clock.Advance(4 * time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1, TriggerMissed: 1})
	tr := c.frame(0, 0)
	if tr.Flags != fpga.FlagTriggered || tr.Start != uint64(time.Second) || tr.End != uint64(time.Second+4*time.Millisecond) {
		t.Errorf("%+v", tr)
	}
	c.clock.Advance(time.Second)
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1, TriggerMissed: 1})
	if got := c.cam.Events(); got != fpga.EventTriggerMissed {
		t.Errorf("events %#x", got)
	}
}

// Stop abandons the current exposure.
func TestCameraStop(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 2, 512)
	c.start(logAll)
	c.credit(1)
	_ = c.cam.Start()
	_ = c.cam.Stop()
	c.clock.Advance(time.Second)
	time.Sleep(2 * time.Millisecond)
	c.counters(fpga.CameraCounters{})
	if c.cam.Status()&fpga.StatusRunning != 0 {
		t.Error("still running")
	}
}

func TestCameraConfigure(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 1, 512)
	if c.cam.FrameBytes() != 128*16*2 || c.cam.Stride() != 256 {
		t.Errorf("%d bytes, stride %d", c.cam.FrameBytes(), c.cam.Stride())
	}
	good := fpga.CameraConfig{Width: 128, Height: 16, Format: c.sensor.Config().Format, Period: 5 * time.Millisecond, Exposure: time.Millisecond}
	if err := c.cam.Configure(good); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func(*fpga.CameraConfig)
		says   string
	}{
		"wide":      {func(c *fpga.CameraConfig) { c.Width = 130 }, "130x16, the sensor has 128x16"},
		"smaller":   {func(c *fpga.CameraConfig) { c.Width = 64 }, "refuses 64x16 RG10"},
		"format":    {func(c *fpga.CameraConfig) { c.Format = 0 }, "unknown format"},
		"Bayer":     {func(c *fpga.CameraConfig) { c.Format = fpga.NewFourCC([4]byte{'B', 'G', '1', '0'}) }, "refuses 128x16 BG10"},
		"fast":      {func(c *fpga.CameraConfig) { c.Period, c.Exposure = 1, 0 }, "period 1ns"},
		"slow":      {func(c *fpga.CameraConfig) { c.Period = time.Minute }, "period 1m0s"},
		"exposure":  {func(c *fpga.CameraConfig) { c.Exposure = 6 * time.Millisecond }, "longer than the period"},
		"high gain": {func(c *fpga.CameraConfig) { c.Gain = 17 }, "GAIN was written 0x1100 and reads back 0x1000"},
		"wild gain": {func(c *fpga.CameraConfig) { c.Gain = -1 }, "gain -1"},
	} {
		cfg := good
		x.change(&cfg)
		if err := c.cam.Configure(cfg); !errors.Is(err, fpga.ErrCameraConfig) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.d.BARs()[0].Registers.Write32(fpga.CamHeight, 15)
	if err := c.cam.Start(); !errors.Is(err, fpga.ErrCameraConfig) || c.cam.Status()&fpga.StatusRunning != 0 {
		t.Errorf("start with a bad geometry: %v, status %#x", err, c.cam.Status())
	}
}

// With a clock that jumps, the device runs as fast as the machine can, and the ring gets credits late. Everything that
// arrives must be correct and in order, and every frame accounted for.
func TestCameraAccounting(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 2, 700)
	c.start(logAll)
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	c.clock.Free()
	last := int64(-1)
	for n := range 200 {
		c.credit(1)
		c.eventually("frame", func() bool { return c.r(0x1048) == uint32((n+1)*c.perDsc) })
		tr, err := fpga.ParseTrailer(c.bytes(c.slots[n%2].trailer, fpga.TrailerSize))
		if err != nil || int64(tr.Sequence) <= last {
			t.Fatalf("frame %d after %d: %v", tr.Sequence, last, err)
		}
		last = int64(tr.Sequence)
		c.frame(n%2, tr.Sequence)
	}
	_ = c.cam.Stop()
	c.w(0x100c, 1)
	c.idle(0x1000)
	c.eventually("the sums", func() bool {
		k, _ := c.cam.Counters()
		return k.Delivered == 200 && k.Sequence == uint64(k.Delivered)+uint64(k.Dropped)
	})
}

func TestRealClock(t *testing.T) {
	clock := RealClock()
	begin := clock.Now()
	if !clock.Wait(begin.Add(3*time.Millisecond), nil) || clock.Now().Sub(begin) < 3*time.Millisecond {
		t.Error("woke up early")
	}
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	if clock.Wait(begin.Add(time.Hour), wake) {
		t.Error("the time has not come")
	}
}
