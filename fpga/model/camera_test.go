package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tegracast/fpga"
)

// cameraHost is a host with a ring of frame slots behind C2H stream channel 0, each of scattered segments and a
// trailer descriptor.
type cameraHost struct {
	*host
	clock  *VirtualClock
	sensor *Sensor
	cam    *fpga.Camera
	slots  []slot
	perDsc int // descriptors a slot
	wb     uint64
}

type slot struct {
	segments []desc
	trailer  uint64
}

// newCameraHost lays out nslots frames in segments of up to most bytes.
func newCameraHost(t testing.TB, s *Sensor, clock Clock, nslots, most int) *cameraHost {
	t.Helper()
	c := &cameraHost{sensor: s}
	c.clock, _ = clock.(*VirtualClock)
	c.host = newHost(t, func(b Bus) Config {
		cfg := Camera(b, s)
		cfg.Clock = clock
		return cfg
	})
	var err error
	if c.cam, err = fpga.OpenCamera(c.d.BARs()[0].Registers); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(nslots), uint64(most)))
	var lengths []int
	for left := s.FrameBytes(); left > 0; {
		n := min(left, BeatBytes*(1+rng.IntN(most/BeatBytes)))
		lengths = append(lengths, n)
		left -= n
	}
	c.perDsc = len(lengths) + 1
	total := nslots * c.perDsc
	c.wb = c.alloc(total * 32)
	ring := c.alloc(total * 32)
	var list []desc
	for range nslots {
		base := c.alloc(s.FrameBytes() + len(lengths)*64)
		trailer := c.alloc(fpga.TrailerSize)
		sl := slot{trailer: trailer}
		at := make([]uint64, len(lengths)) // the segments lie in random order
		for _, i := range rng.Perm(len(lengths)) {
			at[i] = base
			base += uint64(lengths[i]) + 64
		}
		for i, n := range lengths {
			sl.segments = append(sl.segments, desc{length: uint32(n), src: c.wb + uint64(len(list)+i)*32, dst: at[i]})
		}
		c.slots = append(c.slots, sl)
		list = append(list, sl.segments...)
		list = append(list, desc{control: 2, length: fpga.TrailerSize, src: c.wb + uint64(len(list))*32, dst: trailer})
	}
	c.list(ring, ring, list)
	c.first(0x5000, ring, 0)
	c.run()
	return c
}

func (c *cameraHost) start(control uint32) {
	c.t.Helper()
	c.w(0x6024, 1<<16)
	c.w(0x1004, control|1)
}

// credit gives slots to the device, in pieces that the counter holds.
func (c *cameraHost) credit(slots int) {
	c.t.Helper()
	left := slots * c.perDsc
	c.eventually("room for credits", func() bool {
		n := min(left, 1023-int(c.r(0x508c)))
		c.w(0x508c, uint32(n))
		left -= n
		return left == 0
	})
}

// frame collects a slot and checks everything about it.
func (c *cameraHost) frame(i int, wantSeq uint64) fpga.Trailer {
	c.t.Helper()
	var got []byte
	for k, s := range c.slots[i].segments {
		got = append(got, c.bytes(s.dst, int(s.length))...)
		if w, n := c.word(s.src), c.word(s.src+4); w != 0x52b4<<16 || n != s.length {
			c.t.Errorf("slot %d, descriptor %d: write-back %#x, %d", i, k, w, n)
		}
	}
	end := c.wb + uint64((i+1)*c.perDsc-1)*32
	if w, n := c.word(end), c.word(end+4); w != 0x52b4<<16|1 || n != fpga.TrailerSize {
		c.t.Errorf("slot %d, trailer: write-back %#x, %d", i, w, n)
	}
	tr, err := fpga.ParseTrailer(c.bytes(c.slots[i].trailer, fpga.TrailerSize))
	if err != nil {
		c.t.Fatalf("slot %d: %v", i, err)
	}
	if tr.Sequence != wantSeq {
		c.t.Errorf("slot %d holds frame %d, want %d", i, tr.Sequence, wantSeq)
	}
	want := make([]byte, c.sensor.FrameBytes())
	c.sensor.Frame(tr.Sequence, want)
	if !bytes.Equal(got, want) {
		c.t.Errorf("slot %d: the pixels are not those of frame %d", i, tr.Sequence)
	}
	if tr.PixelCRC != fpga.PixelCRC(got) || int(tr.Bytes) != len(got) || tr.Flags&^fpga.FlagTriggered != 0 {
		c.t.Errorf("trailer %+v", tr)
	}
	return tr
}

func (c *cameraHost) counters(want fpga.CameraCounters) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("counters %+v", want), func() bool {
		got, err := c.cam.Counters()
		if err != nil {
			c.t.Fatal(err)
		}
		return got == want
	})
}

func virtual() *VirtualClock { return NewVirtualClock(time.Unix(1_700_000_000, 0)) }

func TestCameraStream(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 3, 700)
	c.start(logAll)
	c.credit(3)
	c.clock.Advance(time.Second)
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		c.clock.Advance(4 * time.Millisecond) // the exposure
		c.eventually("frame", func() bool { return c.r(0x1048) == uint32((n+1)*c.perDsc) })
		tr := c.frame(n%3, uint64(n))
		start := uint64(time.Second) + uint64(n)*uint64(10*time.Millisecond)
		if tr.Start != start || tr.End != start+4e6 {
			t.Errorf("frame %d was exposed from %d to %d ns, want from %d", n, tr.Start, tr.End, start)
		}
		c.credit(1)
		c.clock.Advance(6 * time.Millisecond)
	}
	c.counters(fpga.CameraCounters{Sequence: 20, Delivered: 20})
	if got := c.cam.Timestamp(); got != uint64(1200*time.Millisecond) {
		t.Errorf("timestamp %d", got)
	}
	if got := c.r(0x1040); got != 1|1<<2 {
		t.Errorf("status %#x", got)
	}
}

// Without credits the frame memory fills, then whole frames are dropped; what was in it leaves first.
func TestCameraDropsWithoutCredits(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 4, 4096)
	c.start(logAll)
	c.cam.EnableEvents(fpga.EventDropped)
	c.w(0x2080, 7) // user interrupt 0
	c.w(0x2004, 1)
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	frame := func(n uint64) {
		c.clock.Advance(10 * time.Millisecond)
		c.eventually("sequence", func() bool { k, _ := c.cam.Counters(); return k.Sequence == n })
	}
	for n := range uint64(6) {
		frame(n + 1)
	}
	c.counters(fpga.CameraCounters{Sequence: 6, Dropped: 4})
	if err := c.d.Interrupts().Wait(t.Context(), 7); err != nil {
		t.Error(err)
	}
	if got := c.r(0x2048); got != 1 {
		t.Errorf("user interrupt pending %#x", got)
	}
	if got := c.cam.Events(); got != fpga.EventDropped || c.r(0x2048) != 0 {
		t.Errorf("events %#x, then pending %#x", got, c.r(0x2048))
	}
	c.w(0x508c, 1) // a part of frame 0, and no more
	c.eventually("packet open", func() bool { return c.cam.Status()&fpga.StatusPacketOpen != 0 })
	frame(7)
	c.counters(fpga.CameraCounters{Sequence: 7, Dropped: 5})
	c.w(0x508c, uint32(2*c.perDsc-1))
	c.counters(fpga.CameraCounters{Sequence: 7, Delivered: 2, Dropped: 5})
	c.credit(1)
	frame(8)
	c.counters(fpga.CameraCounters{Sequence: 8, Delivered: 3, Dropped: 5})
	for i, seq := range []uint64{0, 1, 7} {
		c.frame(i, seq)
	}
}

// A frame of more descriptors than the credit counter holds.
func TestCameraThousandsOfDescriptors(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 640, 64), virtual(), 2, 32)
	if c.perDsc < 3000 {
		t.Fatalf("%d descriptors a frame", c.perDsc)
	}
	c.start(logAll)
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		c.clock.Advance(10 * time.Millisecond)
		c.credit(1)
		c.eventually("frame", func() bool { return c.r(0x1048) == uint32((n+1)*c.perDsc) })
		c.frame(n%2, uint64(n))
	}
}

// The channel is stopped inside a frame. The next start begins with the first pixel of a frame.
func TestCameraRestartInsideFrame(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 2, 512)
	for round := range 3 {
		c.start(logAll)
		c.w(0x508c, 2)
		if err := c.cam.Start(); err != nil {
			t.Fatal(err)
		}
		c.clock.Advance(4 * time.Millisecond)
		c.eventually("two descriptors", func() bool { return c.r(0x1048) == 2 })
		c.w(0x100c, 1)
		c.idle(0x1000)
		c.counters(fpga.CameraCounters{Sequence: 1, Dropped: 1})
		if c.cam.Status()&(fpga.StatusPacketOpen|fpga.StatusHostReady) != 0 {
			t.Errorf("status %#x", c.cam.Status())
		}
		c.clock.Advance(10 * time.Millisecond) // nobody is there
		c.counters(fpga.CameraCounters{Sequence: 2, Dropped: 2})
		c.start(logAll)
		c.credit(1)
		c.clock.Advance(10 * time.Millisecond)
		c.counters(fpga.CameraCounters{Sequence: 3, Delivered: 1, Dropped: 2})
		c.frame(0, 2)
		c.w(0x100c, 1)
		c.idle(0x1000)
		if err := c.cam.Stop(); err != nil {
			t.Fatal(round, err)
		}
	}
}

// The camera is started anew while a packet is open: the packet is finished, the counters begin at zero.
func TestCameraRestartWithOpenPacket(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 2, 512)
	c.start(logAll)
	c.w(0x508c, 2)
	_ = c.cam.Start()
	c.clock.Advance(14 * time.Millisecond) // two frames
	c.eventually("two descriptors", func() bool { return c.r(0x1048) == 2 })
	_ = c.cam.Stop()
	_ = c.cam.Start()
	c.w(0x508c, uint32(c.perDsc-2))
	c.eventually("frame", func() bool { return c.r(0x1048) == uint32(c.perDsc) })
	c.frame(0, 0)
	c.counters(fpga.CameraCounters{})
	c.credit(1)
	c.clock.Advance(4 * time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1})
	c.frame(1, 0)
}

// The channel stops while a frame is being built: the frame is dropped, not kept for the next start.
func TestCameraStopsWhileFilling(t *testing.T) {
	s, err := NewSensor(TestChartSensor())
	if err != nil {
		t.Fatal(err)
	}
	cfg := Camera(&flatBus{}, s)
	cfg.Clock = virtual()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := d.camera
	locked := func(f func()) {
		d.mu.Lock()
		defer d.mu.Unlock()
		f()
	}
	locked(func() {
		c.host.control |= bitRun
		c.exposure = 0
		c.start(d.clock.Now())
	})
	done := make(chan struct{})
	go func() {
		c.take()
		close(done)
	}()
	for filling := false; !filling; {
		locked(func() { filling = c.buffers[0].used })
	}
	locked(c.detach)
	<-done
	if c.nfull != 0 || c.dropped != 1 || c.buffers[0].used {
		t.Errorf("%d frames in memory, %d dropped", c.nfull, c.dropped)
	}
}

func TestForceEOP(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 128, 16), virtual(), 2, 512)
	c.start(logAll)
	c.cam.ForceEOP() // no packet is open: nothing happens
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
	cfg := fpga.CameraConfig{Width: 128, Height: 16, Format: c.sensor.Config().Format, Triggered: true, Exposure: time.Millisecond}
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
	c.clock.Advance(time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1, TriggerMissed: 1})
	tr := c.frame(0, 0)
	if tr.Flags != fpga.FlagTriggered || tr.Start != uint64(time.Second) || tr.End != uint64(time.Second+time.Millisecond) {
		t.Errorf("%+v", tr)
	}
	c.clock.Advance(time.Second)
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1, TriggerMissed: 1})
	if got := c.cam.Events(); got != fpga.EventTriggerMissed {
		t.Errorf("events %#x", got)
	}
}

// Stop abandons the exposure under way.
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
		"wide":       {func(c *fpga.CameraConfig) { c.Width = 130 }, "130x16, the sensor has 128x16"},
		"smaller":    {func(c *fpga.CameraConfig) { c.Width = 64 }, "refuses 64x16 RG10"},
		"format":     {func(c *fpga.CameraConfig) { c.Format = 0 }, "unknown format"},
		"Bayer":      {func(c *fpga.CameraConfig) { c.Format = fpga.NewFourCC([4]byte{'B', 'G', '1', '0'}) }, "refuses 128x16 BG10"},
		"fast":       {func(c *fpga.CameraConfig) { c.Period, c.Exposure = 1, 0 }, "period 1ns"},
		"slow":       {func(c *fpga.CameraConfig) { c.Period = time.Minute }, "period 1m0s"},
		"exposure":   {func(c *fpga.CameraConfig) { c.Exposure = 6 * time.Millisecond }, "longer than the period"},
		"fixed gain": {func(c *fpga.CameraConfig) { c.Gain = 2 }, "gain is fixed"},
		"wild gain":  {func(c *fpga.CameraConfig) { c.Gain = -1 }, "gain -1"},
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

// The clock that jumps: as fast as the machine can, with the ring credited late. What arrives is right and in order,
// and every frame is accounted for.
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

// flatBus is memory without holes.
type flatBus struct{ mem []byte }

func (b *flatBus) Read(addr uint64, p []byte) error { copy(p, b.mem[addr:]); return nil }

func (b *flatBus) Write(addr uint64, p []byte) error { copy(b.mem[addr:], p); return nil }

// chartDevice streams the test chart without a pause into one slot of 64 KiB segments.
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
	regs.Write32(0x1004, 1<<27|logAll|1)
	d.BARs()[0].Registers.Write32(fpga.CamControl, fpga.CameraRun)
	return d, clock, perFrame
}

// oneFrame lets one frame period pass and waits until the frame has arrived.
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
	}); n > 1 { // the virtual clock's broadcast
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
