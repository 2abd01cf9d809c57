// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// cameraHost is a host with a ring of frame slots behind C2H stream channel 0. Each slot consists of scattered segments
// and a trailer descriptor.
type cameraHost struct {
	*host
	clock  *VirtualClock
	sensor *Sensor
	cam    *fpga.Camera
	slots  []slot
	perDsc int // descriptors per slot
	ring   uint64
	wb     uint64
}

type slot struct {
	segments []desc
	trailer  uint64
}

// newCameraHost lays out nslots frames in segments of up to most bytes.
func newCameraHost(t testing.TB, s *Sensor, clock Clock, nslots, most int, change ...func(*Config)) *cameraHost {
	t.Helper()
	c := &cameraHost{sensor: s}
	c.clock, _ = clock.(*VirtualClock)
	c.host = newHost(t, func(b Bus) Config {
		cfg := Camera(b, s)
		cfg.Clock = clock
		for _, f := range change {
			f(&cfg)
		}
		return cfg
	})
	var err error
	if c.cam, err = fpga.OpenCameraBlock(c.d.BARs()[0].Registers, 0); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(nslots), uint64(most)))
	var lengths []int
	for left := s.FrameBytes(); left > 0; {
		n := min(left, c2hGranularity*(1+rng.IntN(most/c2hGranularity)))
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
		at := make([]uint64, len(lengths)) // the segments are in random order
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
	c.ring = ring
	c.first(0x5000, ring, 0)
	c.startDevice()
	return c
}

func (c *cameraHost) start(control uint32) {
	c.t.Helper()
	c.w(0x6024, 1<<16)
	c.w(0x1004, control|1)
}

// credit gives slots to the device, in pieces that fit the counter.
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

// frame reads a slot and checks everything about it.
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

// Without credits the frame memory fills up, then whole frames are dropped; the frames in the memory are sent first.
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
	c.w(0x508c, 1) // for part of frame 0 only
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

// A frame with more descriptors than the credit counter can hold.
func TestCameraThousandsOfDescriptors(t *testing.T) {
	c := newCameraHost(t, smallSensor(t, 640, 320), virtual(), 2, 64)
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

// The channel is stopped inside a frame. The next start must begin with the first pixel of a frame.
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
		c.clock.Advance(10 * time.Millisecond) // there is no host
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

// The camera is restarted while a packet is open: the packet must be finished, and the counters start at zero.
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

// While the channel completes its last descriptor, frames wait in the frame memory; they are dropped once it is idle.
func TestCameraKeepsFramesUntilIdle(t *testing.T) {
	cfg := smallSensor(t, 128, 16).Config()
	cfg.Readout = 10 * time.Millisecond
	s, err := NewSensor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := newCameraHost(t, s, virtual(), 2, 1<<20) // a frame is one descriptor
	c.start(logAll)
	c.credit(2)
	if err := c.cam.Configure(fpga.CameraConfig{Width: 128, Height: 16, Format: cfg.Format, Triggered: true, Exposure: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	c.cam.Trigger()
	c.clock.Advance(time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 1})
	c.clock.Advance(5 * time.Millisecond) // half of the lines
	half, first := s.FrameBytes()/2, c.slots[0].segments[0]
	if int(first.length) <= half {
		t.Fatalf("the first descriptor has %d bytes, want more than %d", first.length, half)
	}
	c.eventually("half a frame", func() bool { return c.bytes(first.dst+uint64(half-BeatBytes), 1)[0] != 0 })
	c.w(0x100c, 1)
	c.cam.Trigger()
	c.clock.Advance(time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 2})
	if c.r(0x1040)&1 == 0 {
		t.Error("the channel is idle inside a descriptor")
	}
	c.clock.Advance(10 * time.Millisecond)
	c.idle(0x1000)
	c.counters(fpga.CameraCounters{Sequence: 2, Dropped: 2})
}

// The channel stops while a frame is being built: the frame must be dropped, not kept for the next start.
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
	c := d.cameras[0]
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
		c.endExposure()
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

// TestLateFramesAreNotBuilt checks that a frame that comes too late on a slow machine costs no time. Building one of
// frames 1 to 5 would panic, since they have no samples.
func TestLateFramesAreNotBuilt(t *testing.T) {
	cfg := smallSensor(t, 128, 16).Config()
	cfg.Readout, cfg.Period, cfg.Exposure = 10*time.Millisecond, 20*time.Millisecond, time.Millisecond
	for len(cfg.Frames) < 10 {
		cfg.Frames = append(cfg.Frames, cfg.Frames[0])
	}
	s, err := NewSensor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	clear(s.cfg.Frames[1:6])
	c := newCameraHost(t, s, virtual(), 2, 1<<20)
	c.start(logAll)
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	sensor := c.d.cameras[0]
	c.d.mu.Lock()
	sensor.due, sensor.begin = sensor.due.Add(-8*cfg.Period), sensor.begin.Add(-8*cfg.Period)
	c.d.mu.Unlock()
	sensor.kick()
	c.counters(fpga.CameraCounters{Sequence: 8, Dropped: 6})
}
