// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

func TestTimestampCounter(t *testing.T) {
	clock := virtual()
	c := newCameraHost(t, smallSensor(t, 64, 2), clock, 2, 4096, func(cfg *Config) { cfg.ClockPPM = 50 })
	expect := func(want time.Duration) {
		t.Helper()
		if got := c.cam.Timestamp(); got != uint64(want) {
			t.Errorf("timestamp %d, want %d", got, want)
		}
	}
	clock.Advance(time.Second)
	expect(time.Second + 50*time.Microsecond)
	if err := c.d.SetClockPPM(-100); err != nil {
		t.Fatal(err)
	}
	expect(time.Second + 50*time.Microsecond)
	clock.Advance(10 * time.Hour)
	expect(10*time.Hour + time.Second + 50*time.Microsecond - 3600*time.Millisecond)
	c.d.StepClock(-time.Hour)
	expect(9*time.Hour + time.Second + 50*time.Microsecond - 3600*time.Millisecond)
	c.d.StepClock(-100 * time.Hour)
	expect(0)
	c.d.StepClock(time.Minute)
	expect(time.Minute)
	if c.d.SetClockPPM(1e5) == nil {
		t.Error("no error")
	}
}

// The times in the trailers follow the frame timer with a delay derived from the seed.
func TestJitter(t *testing.T) {
	starts := func(seed uint64, most time.Duration) (list []time.Duration) {
		cfg := smallSensor(t, 64, 2).Config()
		cfg.Jitter, cfg.JitterSeed = most, seed
		s, err := NewSensor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := newCameraHost(t, s, virtual(), 2, 4096)
		c.start(logAll)
		if err := c.cam.Start(); err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			c.credit(1)
			c.clock.Advance(10 * time.Millisecond)
			c.eventually("frame", func() bool { return c.r(0x1048) == uint32((n+1)*c.perDsc) })
			tr := c.frame(n%2, uint64(n))
			if tr.End-tr.Start != 4e6 {
				t.Errorf("exposed for %d ns", tr.End-tr.Start)
			}
			list = append(list, time.Duration(tr.Start)-time.Duration(n)*10*time.Millisecond)
		}
		return list
	}
	a, b, again := starts(1, 5*time.Millisecond), starts(2, 5*time.Millisecond), starts(1, 5*time.Millisecond)
	least, most, differ := time.Hour, time.Duration(0), 0
	for i := range a {
		least, most = min(least, a[i]), max(most, a[i])
		if a[i] != again[i] {
			t.Errorf("frame %d: %v and %v from the same seed", i, a[i], again[i])
		}
		if a[i] != b[i] {
			differ++
		}
	}
	if least < 0 || least > 2*time.Millisecond || most < 3*time.Millisecond || most >= 5*time.Millisecond || differ < 15 {
		t.Errorf("delays from %v to %v, %d of 20 differ between the seeds", least, most, differ)
	}
	bad := smallSensor(t, 64, 2).Config()
	bad.Jitter = 7 * time.Millisecond
	if _, err := NewSensor(bad); err == nil {
		t.Error("jitter beyond what exposure and period leave: no error")
	}
}

// Two cameras with a channel between them, each with its own block, interrupt and counters.
func TestTwoCameras(t *testing.T) {
	clock := virtual()
	h := newHost(t, func(b Bus) Config {
		return Config{
			Bus: b, Clock: clock, H2C: []Interface{MemoryMapped}, C2H: []Interface{Stream, MemoryMapped, Stream},
			Sensors: []*Sensor{smallSensor(t, 64, 2), smallSensor(t, 128, 4)},
		}
	}).startDevice()
	user := h.d.BARs()[0].Registers
	var cams [2]*fpga.Camera
	for n := range cams {
		var err error
		if cams[n], err = fpga.OpenCameraBlock(user, n); err != nil {
			t.Fatal(err)
		}
		if info := cams[n].Info(); info.Index != n || info.Cameras != 2 || info.Channel != 2*n || info.MaxWidth != 64<<n {
			t.Errorf("camera %d: %+v", n, info)
		}
	}
	if _, err := fpga.OpenCameraBlock(user, 2); err == nil {
		t.Error("a third camera")
	}
	h.w(0x2004, 3)
	h.w(0x2080, 5<<8|4)
	for n, channel := range []uint32{0x1000, 0x1200} {
		cams[n].EnableEvents(fpga.EventDropped)
		if err := cams[n].Start(); err != nil {
			t.Fatal(err)
		}
		h.eventually("exposing", func() bool { return cams[n].Status()&fpga.StatusExposing != 0 })
		clock.Advance(10 * time.Millisecond) // no host: dropped
		if err := h.d.Interrupts().Wait(t.Context(), 4+n); err != nil {
			t.Error(err)
		}
		if got := h.r(0x2048); got != 1<<n {
			t.Errorf("user interrupts pending %#x, want that of camera %d", got, n)
		}
		_ = cams[n].Stop()
		cams[n].Events()
		s := h.d.cameras[n].sensor
		ring, dst, wb := h.alloc(4096), h.alloc(s.FrameBytes()), h.alloc(4096)
		h.list(ring, 0, []desc{{length: uint32(s.FrameBytes()), src: wb, dst: dst}, {length: fpga.TrailerSize, src: wb + 32, dst: wb + 128, control: 1}})
		h.first(0x4000+channel, ring, 0)
		h.w(channel+4, logAll|1)
		_ = cams[n].Start()
		clock.Advance(4 * time.Millisecond)
		h.idle(channel)
		_ = cams[n].Stop()
		tr, err := fpga.ParseTrailer(h.bytes(wb+128, fpga.TrailerSize))
		if err != nil || tr.Width != 64<<n || tr.PixelCRC != fpga.PixelCRC(h.bytes(dst, s.FrameBytes())) {
			t.Errorf("camera %d: %+v, %v", n, tr, err)
		}
		h.w(channel+0xc, 1)
	}
}

// TestTimeIsSet has the host step the timestamp counter and set its rate, through the registers of the first camera.
// The other cameras share the counter, but lack these registers. For a Design, this is tested in fpga/rtl.
func TestTimeIsSet(t *testing.T) {
	clock := virtual()
	c := newCameraHost(t, smallSensor(t, 64, 2), clock, 2, 4096, func(cfg *Config) {
		cfg.Sensors, cfg.C2H = append(cfg.Sensors, smallSensor(t, 64, 2)), append(cfg.C2H, Stream)
		cfg.ClockPPM = 10
	})
	regs := c.d.BARs()[0].Registers
	const second = fpga.CameraBlock
	expect := func(want time.Duration) {
		t.Helper()
		for _, block := range []uint32{0, second} {
			got := uint64(regs.Read32(block+fpga.CamTimeLow)) | uint64(regs.Read32(block+fpga.CamTimeHigh))<<32
			if got != uint64(want) {
				t.Errorf("block %#x: timestamp %d, want %d", block, got, want)
			}
		}
	}
	step := func(block uint32, by time.Duration) {
		regs.Write32(block+fpga.CamTimeStepLow, uint32(by))
		regs.Write32(block+fpga.CamTimeStepHigh, uint32(by>>32))
	}
	clock.Advance(time.Second)
	expect(time.Second + 10*time.Microsecond)
	step(0, time.Hour)
	expect(time.Hour + time.Second + 10*time.Microsecond)
	step(0, -time.Hour)
	step(second, time.Hour)
	expect(time.Second + 10*time.Microsecond)
	regs.Write32(fpga.CamTimeRate, uint32(1<<32-30_000)) // 30 ppm slower
	regs.Write32(second+fpga.CamTimeRate, 500_000)
	clock.Advance(time.Second)
	expect(2*time.Second - 10*time.Microsecond)
	for off, want := range map[uint32]uint32{
		fpga.CamTimeRate: 1<<32 - 30_000, second + fpga.CamTimeRate: 0, second + fpga.CamTimeStepLow: 0,
	} {
		if got := regs.Read32(off); got != want {
			t.Errorf("register %#x is %d, want %d", off, got, want)
		}
	}
	for block, want := range map[uint32]bool{0: true, second: false} {
		if has := fpga.CameraCaps(regs.Read32(block+fpga.CamCapabilities))&fpga.CapTimeSet != 0; has != want {
			t.Errorf("block %#x: the time can be set: %v", block, has)
		}
	}
	c.d.Reset()
	clock.Advance(time.Second)
	expect(time.Second + 10*time.Microsecond)
}
