// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// receiveFrames receives and frees n frames.
func (c *camera) receiveFrames(t testing.TB, n int) {
	t.Helper()
	for range n {
		slot, _ := c.next(t)
		if err := c.ring.Free(slot); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *camera) restart(t testing.TB) {
	t.Helper()
	if err := errors.Join(c.Stop(), c.ring.Stop()); err != nil {
		t.Fatal(err)
	}
	c.start(t)
}

// fails waits until Next fails; it returns the time that took, and the error.
func (c *camera) fails(t testing.TB) (time.Duration, error) {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		done, err := c.ring.Next(ctx)
		if err != nil {
			return time.Since(begin), err
		}
		if err := c.ring.Free(done.Slot); err != nil {
			return time.Since(begin), err
		}
	}
}

func TestPollMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 320, 240, 3, 128, 2*time.Millisecond, polling)
		cam.start(t)
		begin := time.Now()
		cam.receiveFrames(t, 10)
		if s := cam.ring.Stats(); s.Missed != 0 || s.Interrupts == 0 || s.Frames != 10 || s.Descriptors != 10*1201 {
			t.Errorf("%+v", s)
		}
		if took := time.Since(begin); took > 40*time.Millisecond {
			t.Errorf("10 frames at 2 ms took %v", took)
		}
		n, err := cam.ring.Counters()
		if want := uint64(10 * (320*240*2 + fpga.TrailerSize)); err != nil || n.Bytes < want || n.Cycles == 0 || n.Full {
			t.Errorf("%+v, %v, want at least %d bytes", n, err, want)
		}
	})
}

func TestPollModeTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		d, _, _ := startModel(t, model.Loopback(b), polling)
		mem := b.memory(8192, 4096)
		tr, err := d.NewTransfer(fpga.H2C, 0, mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if r, err := tr.Run(t.Context()); err != nil || r.Elapsed > 10*time.Millisecond {
				t.Fatalf("%v, %v", r.Elapsed, err)
			}
		}
		// Nothing is mapped there: the error is reported by bit 31 of the write-back or by the tick.
		bad, err := d.NewTransfer(fpga.H2C, 0, fpga.Memory{Segments: []fpga.Segment{{Addr: 77 << 40, Len: 4096}}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bad.Run(t.Context()); !errors.Is(err, ErrRead) {
			t.Errorf("%v, want ErrRead", err)
		}
		if _, err := tr.Run(t.Context()); err != nil {
			t.Errorf("after the error: %v", err)
		}
	})
}

// Without any interrupt, every frame and transfer still arrives, a tick late.
func TestLostInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 64, 48, 4, 960, 97*time.Millisecond)
		cam.tap.lose(func(context.Context, int) bool { return true })
		cam.start(t)
		begin := time.Now()
		cam.receiveFrames(t, 20)
		if took := time.Since(begin); took > 2200*time.Millisecond {
			t.Errorf("20 frames at 97 ms took %v", took)
		}
		if s := cam.ring.Stats(); s.Missed != 20 || s.Interrupts != 0 {
			t.Errorf("%+v", s)
		}
		cam.tap.lose(nil)
		cam.receiveFrames(t, 5)
		if s := cam.ring.Stats(); s.Missed > 21 || s.Interrupts < 4 {
			t.Errorf("interrupts work again: %+v", s)
		}
	})
}

// The registers that enable interrupts are cleared while the ring is running. The first tick that finds a frame must
// write them again.
func TestInterruptsThatWereSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 64, 48, 4, 960, 3*time.Millisecond)
		cam.start(t)
		cam.receiveFrames(t, 5)
		for _, off := range []uint32{0x1090, 0x2010, 0x20a0} {
			cam.tap.raw.Write32(off, 0)
			before, begin := cam.ring.Stats().Missed, time.Now()
			cam.receiveFrames(t, 20)
			if n, took := cam.ring.Stats().Missed-before, time.Since(begin); n < 1 || took > 120*time.Millisecond {
				t.Errorf("register %#x cleared: %d ticks found a frame, 20 frames at 3 ms took %v", off, n, took)
			}
		}
	})
}

// A write-back from another run arrives before the transfer is done. The transfer must not be taken as done, nor be
// noticed a tick late.
func TestStaleWriteBackOfATransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		d, _, x := startModel(t, model.Loopback(b), polling)
		mem := b.memory(8192, 4096)
		tr, err := d.NewTransfer(fpga.H2C, 0, mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		b.hang(mem.Segments[1].Addr, hold)
		x.on(nil, func(off, v uint32) bool {
			if off == regControl && v&controlRun != 0 {
				atomic.StoreUint32(tr.wait.word, 2)
				time.AfterFunc(5*time.Millisecond, func() { close(hold) })
			}
			return true
		})
		if r, err := tr.Run(t.Context()); err != nil || r.Elapsed < 5*time.Millisecond || r.Elapsed > 8*time.Millisecond {
			t.Errorf("%v, %v", r.Elapsed, err)
		}
	})
}

func TestLostInterruptOfATransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		d, _, x := startModel(t, model.Loopback(b))
		x.lose(func(context.Context, int) bool { return true })
		tr, err := d.NewTransfer(fpga.C2H, 0, b.memory(8192, 4096), 0)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := tr.Run(t.Context()); err != nil || r.Elapsed > d.cfg.Watchdog {
			t.Errorf("%v, %v", r.Elapsed, err)
		}
	})
}

// stutter raises every interrupt many times.
type stutter struct {
	fpga.Interrupts
	again atomic.Int32
}

func (s *stutter) Wait(ctx context.Context, vector int) error {
	if s.again.Add(-1) >= 0 {
		return ctx.Err()
	}
	err := s.Interrupts.Wait(ctx, vector)
	if err == nil {
		s.again.Store(3)
	}
	return err
}

func TestDuplicateInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 64, 48, 4, 960, 2*time.Millisecond, func(c *Config) { c.Interrupts = &stutter{Interrupts: c.Interrupts} })
		cam.start(t)
		cam.receiveFrames(t, 20)
		if s := cam.ring.Stats(); s.Frames != 20 || s.Spurious < 40 {
			t.Errorf("%+v", s)
		}
	})
}

// Every third write of credits is lost, partly or wholly: the credits must be written again, and no frame missed.
func TestLostCredits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 320, 240, 3, 128, 2*time.Millisecond)
		writes := 0
		cam.tap.on(nil, func(off, v uint32) bool {
			if off != 0x508c {
				return true
			}
			writes++
			if writes%3 == 1 {
				cam.tap.raw.Write32(off, v/2)
			}
			return writes%3 != 1
		})
		cam.start(t)
		for want := range uint64(30) {
			slot, seq := cam.next(t)
			if seq != want {
				t.Fatalf("frame %d, want %d", seq, want)
			}
			if err := cam.ring.Free(slot); err != nil {
				t.Fatal(err)
			}
		}
		if s := cam.ring.Stats(); s.CreditsLost == 0 || s.Credits < 30*1201 {
			t.Errorf("%+v", s)
		}
	})
}

// An engine with more credits than it was given stops at the empty position after the last frame: it overwrites
// nothing, and the ring reports it.
func TestTooManyCredits(t *testing.T) {
	for name, write := range map[string]func(cam *camera){
		"granted twice":     func(cam *camera) { cam.tap.raw.Write32(0x508c, 300) },
		"mode switched off": func(cam *camera) { cam.tap.raw.Write32(0x6028, 0xf<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cam := newCamera(t, 64, 48, 4, 960, 2*time.Millisecond)
				cam.bus.breaking = model.RuleMagic // at the empty position
				cam.start(t)
				for range 7 { // positions and slots out of order
					a, _ := cam.next(t)
					b, _ := cam.next(t)
					c, _ := cam.next(t)
					if err := errors.Join(cam.ring.Free(c), cam.ring.Free(a), cam.ring.Free(b)); err != nil {
						t.Fatal(err)
					}
				}
				was := map[int]string{} // slots that are not freed
				for range 3 {
					slot, _ := cam.next(t)
					was[slot] = string(cam.slots[slot].Bytes)
				}
				write(cam)
				time.Sleep(50 * time.Millisecond) // 25 frames
				took, err := cam.fails(t)
				if !errors.Is(err, ErrMagic) && !errors.Is(err, ErrCredits) || took > time.Second {
					t.Errorf("%v after %v, want ErrMagic or ErrCredits", err, took)
				}
				for slot, bytes := range was {
					if bytes != string(cam.slots[slot].Bytes) {
						t.Errorf("slot %d was not freed, and was written", slot)
					}
				}
				cam.restart(t)
				cam.receiveFrames(t, 5)
			})
		})
	}
}

// Write-backs of an earlier frame are there already. They must not be taken for those of the current frame.
func TestStaleWriteBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 64, 48, 3, 960, 20*time.Millisecond)
		if err := cam.ring.Start([]int{0, 1, 2}); err != nil {
			t.Fatal(err)
		}
		for p, s := range cam.ring.slots { // as if delayed since an earlier lap
			copy(cam.ring.writeBack(p), []byte{1, 0, 0xb4, 0x52, 128, 0, 0, 0})
			for k, n := range s.lengths {
				copy(s.writeBacks[k*writeBackSize:], []byte{0, 0, 0xb4, 0x52, byte(n), byte(n >> 8), 0, 0})
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if done, err := cam.ring.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("slot %d, %v", done.Slot, err)
		}
		if s := cam.ring.Stats(); s.Doubted == 0 {
			t.Errorf("%+v", s)
		}
		if err := cam.Start(); err != nil {
			t.Fatal(err)
		}
		cam.receiveFrames(t, 10)
	})
}

// A late write-back is waited for, and one that never arrives is an error.
func TestLateWriteBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 64, 48, 3, 960, 20*time.Millisecond)
		var late atomic.Int32
		late.Store(1)
		cam.bus.onWrite(func(p []byte, write func()) bool {
			if len(p) != 8 || p[0] != 1 || late.Load() == 0 { // write-backs with EOP
				return false
			}
			if late.Load() == 1 {
				late.Store(0)
				time.AfterFunc(300*time.Millisecond, write)
			}
			return true
		})
		cam.start(t)
		cam.receiveFrames(t, 10)
		if s := cam.ring.Stats(); s.Late == 0 {
			t.Errorf("%+v", s)
		}
		late.Store(2)
		took, err := cam.fails(t)
		if !errors.Is(err, ErrLost) || took > 2*time.Second {
			t.Errorf("%v after %v, want ErrLost", err, took)
		}
		late.Store(0)
		cam.restart(t)
		cam.receiveFrames(t, 5)
	})
}
