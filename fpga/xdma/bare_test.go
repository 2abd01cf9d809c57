// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// bare is a stream of frames without trailers, which runs from reset on.
type bare struct {
	camera
	last uint64 // stamp of the last frame
}

func newBare(t testing.TB, width, height, slots, segment int, options ...func(*Config)) *bare {
	t.Helper()
	return newBareMSI(t, 0, width, height, slots, segment, options...)
}

// padding follows each frame in its slot, and must stay unchanged.
var padding = bytes.Repeat([]byte{0xa5}, 64)

// newBareMSI is newBare on a core with that many MSI vectors.
func newBareMSI(t testing.TB, msi, width, height, slots, segment int, options ...func(*Config)) *bare {
	t.Helper()
	s, err := model.NewSensor(model.SensorConfig{
		Width: width, Height: height, Format: fpga.NewFourCC([4]byte{'R', 'G', '1', '0'}),
		Frames: [][]byte{random(2 * width * height)}, Shift: 2, Period: 2 * time.Millisecond, Bare: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bare{camera: camera{sensor: s, bus: newBus()}}
	cfg := model.Camera(b.bus, s)
	cfg.MSI = msi
	b.device, b.model, b.tap = startModel(t, cfg, options...)
	for range slots {
		m := b.bus.memory((s.FrameBytes()+63)&^63, segment)
		copy(m.Bytes[s.FrameBytes():], padding)
		b.slots = append(b.slots, m)
	}
	if b.ring, err = b.device.NewRing(RingConfig{Slots: b.slots, Frame: s.FrameBytes()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.ring.Stop(), b.ring.Close()); err != nil {
			t.Error(err)
		}
		if b.bus.faults != 0 {
			t.Errorf("%d accesses outside the mapped memory", b.bus.faults)
		}
	})
	return b
}

func (b *bare) start(t testing.TB) {
	t.Helper()
	var all []int
	for i := range b.slots {
		all = append(all, i)
	}
	if err := b.ring.Start(all); err != nil {
		t.Fatal(err)
	}
}

// try takes a frame and checks every byte.
func (b *bare) try(t testing.TB) (slot int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done, err := b.ring.Next(ctx)
	if err != nil {
		return 0, err
	}
	n, err := model.ReadStamp(b.slots[done.Slot].Bytes, b.sensor.Config().Format)
	if err != nil {
		t.Fatal(err)
	}
	want, got := make([]byte, b.sensor.FrameBytes()), b.slots[done.Slot].Bytes
	if b.sensor.Frame(n, want); !bytes.Equal(want, got[:len(want)]) {
		t.Fatalf("frame %d in slot %d has wrong bytes", n, done.Slot)
	}
	if behind := got[len(want):]; !bytes.HasPrefix(padding, behind) {
		t.Errorf("frame %d in slot %d: %x behind it", n, done.Slot, behind)
	}
	if done.Trailer != nil || n <= b.last {
		t.Errorf("frame %d after %d, trailer %x", n, b.last, done.Trailer)
	}
	b.last = n
	return done.Slot, nil
}

// receiveFrames receives and frees n frames.
func (b *bare) receiveFrames(t testing.TB, n int) {
	t.Helper()
	for range n {
		slot, err := b.try(t)
		if err == nil {
			err = b.ring.Free(slot)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Every start finds the first pixel of a frame, although the packet that the engine left halfway continues.
func TestBareRing(t *testing.T) {
	for _, c := range []struct{ width, height, slots, segment int }{
		{64, 8, 2, 4096},
		{64, 48, 3, 960},
		{64, 48, 3, 64},    // the last 64 bytes are a segment
		{88, 5, 3, 4096},   // 48 bytes more than a multiple of 64
		{72, 10, 3, 64},    // 32
		{72, 13, 3, 960},   // 16
		{512, 240, 3, 128}, // more descriptors than the credit counter can hold, and more than one scrap per frame
	} {
		for name, msi := range map[string]int{"interrupts": 0, "poll": -1, "a shared vector": 1} {
			t.Run(fmt.Sprintf("%+v %s", c, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBareMSI(t, msi, c.width, c.height, c.slots, c.segment)
					if b.device.cfg.Poll != (msi < 0) {
						t.Errorf("poll mode %t", b.device.cfg.Poll)
					}
					for range 4 {
						b.start(t)
						b.receiveFrames(t, 2*c.slots)
						if err := b.ring.Stop(); err != nil {
							t.Fatal(err)
						}
					}
					if s := b.ring.Stats(); s.Missed != 0 || s.Frames != uint64(8*c.slots) {
						t.Errorf("%+v", s)
					}
				})
			})
		}
	}
}

// open leaves the stream in the middle of a packet: an engine with one descriptor takes part of a frame.
func (b *bare) open(t testing.TB, n int) {
	t.Helper()
	c := b.device.c2h[0]
	piece := part{src: b.bus.memory(4096, 4096).Segments[0].Addr, dst: b.bus.memory(n, n).Segments[0].Addr, n: n, control: descStop | descCompleted}
	m, err := c.allocate("a part of a packet", descriptorSize)
	if err != nil {
		t.Fatal(err)
	}
	chain := writeChain(m.Bytes, m.Segments[0].Addr, []part{piece})
	if err := errors.Join(c.ready(), c.start(chain.at(0), 0, piece.src)); err != nil {
		t.Fatal(err)
	}
	for c.read(regCompleted) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := c.stop(stopBound, nil); err != nil {
		t.Fatal(err)
	}
}

// A start in the middle of a packet discards the rest of it, and nothing else.
func TestBareRingStartsInTheMiddleOfAPacket(t *testing.T) {
	for _, n := range []int{64, 4096, 6144 - 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBare(t, 64, 48, 3, 960)
				b.open(t, n) // of frame 0
				b.start(t)
				b.receiveFrames(t, 1)
				if b.last != 1 {
					t.Errorf("the first frame is %d, want 1", b.last)
				}
			})
		})
	}
}

// Slots freed after the first pixel of a frame has been found are filled from that pixel on.
func TestBareRingWaitsForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t, 64, 48, 3, 960)
		if err := b.ring.Start(nil); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time, the packets have ended
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if done, err := b.ring.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("slot %d, %v: no slot was freed", done.Slot, err)
			}
			cancel()
		}
		if n := b.model.Counters(0); n.Delivered != 1 || n.Dropped == 0 {
			t.Errorf("%+v, want one frame delivered, whose end was looked for", n)
		}
		for i := range b.slots {
			if err := b.ring.Free(i); err != nil {
				t.Fatal(err)
			}
		}
		b.receiveFrames(t, 10)
	})
}

// Packets of the wrong length are never returned as frames, and a new start finds the next correct one.
func TestBareRingRealigns(t *testing.T) {
	for name, options := range map[string][]func(*Config){"interrupts": nil, "poll": {polling}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBare(t, 64, 48, 4, 960, options...)
				for kind := range 6 { // each kind twice
					b.open(t, 64) // otherwise the fault would hit data that is discarded
					if err := b.model.Inject(model.F8); err != nil {
						t.Fatal(err)
					}
					b.start(t)
					var slot int
					var err error
					for range 10 {
						if slot, err = b.try(t); err != nil {
							break
						}
						if err := b.ring.Free(slot); err != nil {
							t.Fatal(err)
						}
					}
					if !errors.Is(err, ErrStream) {
						t.Errorf("kind %d: %v, want ErrStream", kind, err)
					}
					if err := b.ring.Stop(); err != nil {
						t.Fatal(err)
					}
				}
				b.start(t)
				b.receiveFrames(t, 10)
				if n := b.model.FaultCounts()[model.F8]; n != 6 {
					t.Errorf("%d faults", n)
				}
			})
		})
	}
}

// A slow host loses whole frames, which the ring does not notice.
func TestStarvedBareRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t, 64, 48, 3, 960)
		b.start(t)
		for range 3 {
			if _, err := b.try(t); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Millisecond)
		for i := range b.slots {
			if err := b.ring.Free(i); err != nil {
				t.Fatal(err)
			}
		}
		b.receiveFrames(t, 10)
		if n := b.model.Counters(0); n.Dropped < 10 || n.Lost != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// The wake-ups for the scrap may be lost, and its write-back may be late, like those of frames.
func TestBareRingWithoutWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t, 512, 240, 3, 4096)
		b.tap.lose(func(context.Context, int) bool { return true })
		for range 3 {
			b.start(t)
			b.receiveFrames(t, 2)
			if err := b.ring.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		b.tap.lose(nil)
		b.open(t, 64<<10) // three more; the last one shows the end
		late := 0
		b.bus.onWrite(func(p []byte, write func()) bool {
			if end := p[0] == 1; len(p) == 8 && (end && late < 2 || late == 0) {
				late++
				time.AfterFunc(3*time.Millisecond, write)
				return true
			}
			return false
		})
		before := b.model.Counters(0).Delivered
		b.start(t)
		for range 3 {
			if _, err := b.try(t); err != nil {
				t.Fatal(err)
			}
		}
		if s := b.ring.Stats(); s.Late == 0 || late != 2 {
			t.Errorf("%d late, %+v", late, s)
		}
		if n := b.model.Counters(0).Delivered - before; n != 4 {
			t.Errorf("%d frames left, want the rest of one and the three for the slots", n)
		}
	})
}

func TestBareRingRefusals(t *testing.T) {
	b := newBus()
	s, err := model.NewSensor(model.SensorConfig{
		Width: 64, Height: 8, Format: fpga.NewFourCC([4]byte{'R', 'G', '1', '0'}), Frames: [][]byte{random(1024)}, Bare: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	d, _, _ := startModel(t, model.Camera(b, s))
	wide := b.memory(4096, 4096)
	for _, c := range []struct{ frame, slot int }{
		{8, 64}, {16, 64}, {64, 64}, {1032, 4096}, // nothing left for a chain, or no whole beats
		{1040, 1040}, {1072, 1072}, {2048, 1984}, {2048, 1024}, // no room for a multiple of 64
	} {
		mem := fpga.Memory{Segments: []fpga.Segment{{Addr: wide.Segments[0].Addr, Len: c.slot}}}
		if _, err := d.NewRing(RingConfig{Slots: []fpga.Memory{mem, mem}, Frame: c.frame}); !errors.Is(err, ErrMemory) {
			t.Errorf("frames of %d bytes in slots of %d: %v, want ErrMemory", c.frame, c.slot, err)
		}
	}
	if _, err := d.NewRing(RingConfig{Slots: []fpga.Memory{wide, wide}, Trailer: -1}); !errors.Is(err, ErrMemory) {
		t.Errorf("a trailer of -1 bytes: %v, want ErrMemory", err)
	}
}
