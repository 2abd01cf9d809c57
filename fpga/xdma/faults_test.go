// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// Packets of the wrong length are never returned as frames, and a restart realigns.
func TestPacketsOfTheWrongLength(t *testing.T) {
	for name, packets := range map[string][]int{
		"short":                        {4096, 6272, 6272},
		"spanning":                     {7008, 6272, 6272},
		"a trailer alone":              {6144, 128, 6272, 6272},
		"zero length":                  {6272, 6272},
		"as many descriptors":          {6272 - 128, 6272, 6272},
		"ends where a descriptor ends": {1920, 4352, 6272},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				if err := p.in.Start([]int{0, 1, 2}); err != nil {
					t.Fatal(err)
				}
				for _, n := range packets {
					p.raw(n)
				}
				if name == "zero length" { // the model sends none, so write what the IP would
					copy(p.in.slots[0].writeBacks, []byte{1, 0, 0xb4, 0x52, 0, 0, 0, 0})
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if done, err := p.in.Next(ctx); !errors.Is(err, ErrStream) {
					t.Errorf("slot %d, %v, want ErrStream", done.Slot, err)
				}
			})
		})
	}
}

// A hot reset sets every register to its reset state while the ring is running.
func TestHotReset(t *testing.T) {
	for name, options := range map[string][]func(*Config){"interrupts": nil, "poll": {polling}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cam := newCamera(t, 64, 48, 4, 960, 2*time.Millisecond, options...)
				cam.start(t)
				cam.receiveFrames(t, 5)
				for _, off := range []uint32{0x1004, 0x1090, 0x2004, 0x2010, 0x20a0, 0x20a4, 0x2080, 0x6010, 0x6020} {
					cam.tap.raw.Write32(off, 0)
				}
				took, err := cam.fails(t)
				if !errors.Is(err, ErrReset) || took > 100*time.Millisecond {
					t.Fatalf("%v after %v, want ErrReset", err, took)
				}
				if err := cam.ring.Stop(); err != nil {
					t.Error(err)
				}
				if err := cam.device.Recover(t.Context(), fpga.C2H, 0); err != nil {
					t.Error(err)
				}
				before := cam.ring.Stats().Missed
				cam.restart(t)
				cam.receiveFrames(t, 10)
				if s := cam.ring.Stats(); s.Missed != before {
					t.Errorf("interrupts do not come again: %+v", s)
				}
			})
		})
	}
}

// The device leaves the bus: every wait reports it within a tick, and when the device is back, everything can be
// started again.
func TestDeviceThatLeavesAndComesBack(t *testing.T) {
	for name, options := range map[string][]func(*Config){"interrupts": nil, "poll": {polling}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cam := newCamera(t, 64, 48, 4, 960, 2*time.Millisecond, options...)
				cam.start(t)
				cam.receiveFrames(t, 5)
				cam.tap.on(func(uint32, uint32) uint32 { return gone }, func(uint32, uint32) bool { return false })
				took, err := cam.fails(t)
				if !errors.Is(err, ErrGone) || took > 100*time.Millisecond {
					t.Errorf("%v after %v, want ErrGone", err, took)
				}
				if _, err := cam.ring.Counters(); !errors.Is(err, ErrGone) {
					t.Errorf("counters: %v", err)
				}
				if err := cam.ring.Stop(); !errors.Is(err, ErrGone) {
					t.Errorf("stop: %v", err)
				}
				if err := cam.ring.Start(nil); !errors.Is(err, ErrGone) {
					t.Errorf("start: %v", err)
				}
				if err := cam.device.Recover(t.Context(), fpga.C2H, 0); !errors.Is(err, ErrGone) {
					t.Errorf("recover: %v", err)
				}
				if err := cam.device.WaitUser(t.Context(), 0); !errors.Is(err, ErrGone) {
					t.Errorf("user interrupt: %v", err)
				}
				if _, err := cam.device.NewRing(RingConfig{Slots: cam.slots, Trailer: 128}); !errors.Is(err, ErrGone) {
					t.Errorf("new ring: %v", err)
				}
				cam.tap.on(nil, nil)
				cam.restart(t)
				cam.receiveFrames(t, 5)
			})
		})
	}
}

// A counter whose value happens to be all ones does not mean that the device is lost.
func TestCounterOfAllOnes(t *testing.T) {
	b := newBus()
	d, _, x := startModel(t, model.Loopback(b))
	x.on(func(off, v uint32) uint32 {
		if off == regCompleted || off == regPerfCyclesLo {
			return gone
		}
		return v
	}, nil)
	if n, err := d.h2c[0].completed(); n != gone || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := d.h2c[0].counters(); n.Cycles != 0xffffffff || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
}

// Busy stays set: until it is clear, nothing may be freed or started, and the design is asked to end its packet.
func TestBusyNeverClears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 64, 48, 4, 960, 2*time.Millisecond)
		unblocked := 0
		cam.ring.unblock = func() { unblocked++ }
		cam.start(t)
		cam.receiveFrames(t, 2)
		cam.tap.on(func(off, v uint32) uint32 {
			if off == 0x1040 || off == 0x1044 {
				v |= statusBusy
			}
			return v
		}, nil)
		begin := time.Now()
		for range 2 {
			if err := cam.ring.Stop(); !errors.Is(err, ErrBusy) {
				t.Fatalf("stop: %v", err)
			}
		}
		if took := time.Since(begin); took > 2500*time.Millisecond || unblocked != 2 { // only the first stop waits the full time
			t.Errorf("two stops took %v, unblocked %d times", took, unblocked)
		}
		if err := cam.ring.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("close: %v", err)
		}
		if err := cam.ring.Start(nil); !errors.Is(err, ErrBusy) {
			t.Errorf("start: %v", err)
		}
		if err := cam.device.Recover(t.Context(), fpga.C2H, 0); !errors.Is(err, ErrBusy) {
			t.Errorf("recover: %v", err)
		}
		if _, err := cam.ring.Next(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("next: %v", err)
		}
		cam.tap.on(nil, nil)
		cam.restart(t)
		cam.receiveFrames(t, 5)
	})
}

// A hanging transfer is stopped by its context. While the engine holds on to the memory, nothing is freed; afterwards
// the channel works again without a new Device.
func TestTransferThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		d, _, _ := startModel(t, model.Loopback(b))
		mem := b.memory(8192, 4096)
		tr, err := d.NewTransfer(fpga.H2C, 0, mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		b.hang(mem.Segments[1].Addr, hold)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := tr.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want the context's error and ErrBusy", err)
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := tr.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("close while the engine is busy: %v", err)
		}
		if _, err := tr.Run(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("run while the engine is busy: %v", err)
		}
		close(hold)
		b.hang(0, nil)
		if err := d.Recover(t.Context(), fpga.H2C, 0); err != nil {
			t.Error(err)
		}
		if _, err := tr.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTransferAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		d, _, x := startModel(t, model.Loopback(b))
		tr, err := d.NewTransfer(fpga.H2C, 0, b.memory(8192, 4096), 0)
		if err != nil {
			t.Fatal(err)
		}
		x.on(nil, func(off, _ uint32) bool { return off != 0x4080 && off != 0x4084 }) // the engine does not find its descriptors
		time.AfterFunc(time.Millisecond, func() { x.raw.Write32(regControl, 0) })
		x.lose(func(context.Context, int) bool { return true })
		x.on(func(off, v uint32) uint32 {
			if off == regStatusClear {
				return 0
			}
			return v
		}, nil)
		if _, err := tr.Run(t.Context()); !errors.Is(err, ErrReset) {
			t.Errorf("%v, want ErrReset", err)
		}
		x.on(nil, nil)
		x.lose(nil)
		if _, err := tr.Run(t.Context()); err != nil {
			t.Errorf("after the reset: %v", err)
		}
	})
}

func TestOneUserOfAChannel(t *testing.T) {
	cam := newCamera(t, 64, 48, 3, 960, 2*time.Millisecond)
	cam.start(t)
	other, err := cam.device.NewRing(RingConfig{Slots: cam.slots, Trailer: 128})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(nil); !errors.Is(err, ErrBusy) {
		t.Errorf("second ring: %v", err)
	}
	if err := cam.device.Recover(t.Context(), fpga.C2H, 0); !errors.Is(err, ErrBusy) {
		t.Errorf("recover: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	cam.receiveFrames(t, 3)
}

func TestUserInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 64, 48, 2, 960, 2*time.Millisecond)
		d := cam.device
		if err := d.EnableUser(0); err != nil {
			t.Fatal(err)
		}
		cam.EnableEvents(fpga.EventDropped)
		cam.start(t) // two slots, none of which is freed: frames are dropped
		for _, lost := range []bool{false, true} {
			cam.tap.lose(func(_ context.Context, vector int) bool { return lost && vector == 2 })
			for range 3 {
				cam.Events() // clears them, and lowers the level
				begin := time.Now()
				if err := d.WaitUser(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took > 60*time.Millisecond || !lost && took > 10*time.Millisecond {
					t.Errorf("lost %t: an event took %v", lost, took)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.EnableUser(3); err != nil {
			t.Fatal(err)
		}
		if err := d.WaitUser(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an interrupt that nobody raises: %v", err)
		}
		cam.tap.raw.Write32(0x2004, 0)
		if err := d.WaitUser(t.Context(), 3); !errors.Is(err, ErrReset) {
			t.Errorf("after a reset: %v", err)
		}
		if err := errors.Join(d.DisableUser(3), d.DisableUser(0)); err != nil {
			t.Error(err)
		}
		for _, i := range []int{-1, 16} {
			if err := d.EnableUser(i); !errors.Is(err, ErrUser) {
				t.Errorf("user interrupt %d: %v", i, err)
			}
		}
	})
}

// Calls on an abandoned ring do no harm.
func TestAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		s := newSender(t, p, 2, 2)
		s.run(t)
		p.tap.on(func(off, v uint32) uint32 {
			if off == regStatus || off == regStatusClear {
				v |= statusBusy
			}
			if off == regCompleted {
				v = 0
			}
			return v
		}, nil)
		if err := s.Send(t.Context(), 0, make([]byte, 128)); err != nil {
			t.Fatal(err)
		}
		s.cancel()
		if err := <-s.ended; !errors.Is(err, ErrBusy) {
			t.Fatalf("%v, want ErrBusy", err)
		}
		if err := s.Abandon(); err != nil {
			t.Error(err)
		}
		if err := p.device.Recover(t.Context(), fpga.H2C, 0); !errors.Is(err, ErrBusy) {
			t.Errorf("recover while it is busy: %v", err)
		}
		p.tap.on(nil, nil)
		if err := s.Send(t.Context(), 0, make([]byte, 128)); !errors.Is(err, ErrStopped) {
			t.Errorf("send: %v", err)
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Errorf("drain: %v", err)
		}
		if err := p.device.Recover(t.Context(), fpga.H2C, 0); err != nil {
			t.Errorf("recover when it is not busy any more: %v", err)
		}
		_ = s.Close() // may return an error, but must not panic
	})
}
