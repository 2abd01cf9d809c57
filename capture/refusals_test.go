// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegrasim"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestARefusedCallLeavesNothing checks that a camera gives everything back and returns the reason, whichever call is
// refused while it is opened, and with whichever errno. Afterwards the next camera can be opened.
func TestARefusedCallLeavesNothing(t *testing.T) {
	for _, call := range []uint{uapi.CallPin, uapi.CallAlloc, uapi.CallControl} {
		for _, errno := range tegrasim.Errnos(call) {
			for _, nth := range []int{1, 2, 5} {
				if call == uapi.CallControl && nth > 1 { // opening a camera resumes only once
					continue
				}
				t.Run(fmt.Sprintf("%#x %s %d", call, unix.ErrnoName(errno), nth), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { refuseOne(t, call, errno, nth) })
				})
			}
		}
	}
}

func refuseOne(t *testing.T, call uint, errno unix.Errno, nth int) {
	b := newBench(t, 64, 16, faultyRate)
	n := 0
	b.sim.Refuse(func(c uint) unix.Errno {
		if c == call {
			n++
		}
		if c == call && n == nth {
			return errno
		}
		return 0
	})
	cfg := FPGAConfig{Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Slots: 6, Rate: faultyRate}
	c, err := NewFPGACamera(cfg)
	if n < nth { // opening needs fewer such calls
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, errno) {
		t.Fatalf("opened: %v, want %v", err, errno)
	}
	if left := b.card.Pins(); left.Pins != 0 {
		t.Errorf("%d pins are left", left.Pins)
	}
	c = b.open(t, 6)
	collect(t, c, 5, func(f *pipeline.Frame) { f.Release() })
}

// refusing makes the module refuse pins, allocations and Resume at a given rate from the first revocation on; seed
// selects which.
func refusing(sim *tegrasim.Sim, seed uint64, rate float64) {
	draw, begun := tegrasim.Refusals(seed, rate), false
	sim.Refuse(func(call uint) unix.Errno {
		begun = begun || call == uapi.CallPut // frees a revoked pin
		if !begun || call == uapi.CallPut {
			return 0
		}
		return draw(call)
	})
}

// TestRevocationsUnderRefusals revokes memory again and again while the module refuses some of the following calls. The
// device never accesses memory that it has lost, no frame is wrong, and the camera recovers.
func TestRevocationsUnderRefusals(t *testing.T) {
	for seed := range uint64(4 * faultSeeds) {
		synctest.Test(t, func(t *testing.T) {
			b := newFaultyBench(t, 64, 320, faultyRate, model.FaultPlan{Seed: seed, Rates: map[model.FaultID]float64{model.F11: 0.01}})
			refusing(b.sim, seed, 0.05)
			_, out := streamFrom(t, b, 20*time.Second)
			if out.Captured < 300 || out.Err != "" {
				t.Errorf("seed %d: %d frames, %s:\n%s", seed, out.Captured, out.Err, out.Log)
			}
		})
	}
}

// recording is an allocator that records its buffers.
type recording struct {
	cudahost.Allocator
	made []*cudahost.Buffer
}

func (r *recording) AllocHost(size int, flags cudahost.Flags) (*cudahost.Buffer, error) {
	b, err := r.Allocator.AllocHost(size, flags)
	if b != nil {
		r.made = append(r.made, b)
	}
	return b, err
}

// TestPinsAreRefusedAfterARevocation revokes each slot of two cameras and an output in turn; after each revocation
// nothing can be pinned for two seconds. The device does not access memory that it has lost, no frame is wrong, and
// everything recovers.
func TestPinsAreRefusedAfterARevocation(t *testing.T) {
	slots := 1
	for n := 0; n < slots; n++ {
		synctest.Test(t, func(t *testing.T) {
			w := newTwoWay(t, model.FaultPlan{})
			hw := w.card.Hardware
			memory := &recording{Allocator: hw.Memory}
			hw.Memory = memory
			w.card = NewCard(hw)
			revoke := time.AfterFunc(2*time.Second, func() {
				slots = len(memory.made)
				w.sim.Refuse(func(call uint) unix.Errno {
					if call == uapi.CallPin {
						return unix.ENOMEM
					}
					return 0
				})
				w.sim.Invalidate(memory.made[n].Addr(), tegra.PageSize)
			})
			again := time.AfterFunc(4*time.Second, func() { w.sim.Refuse(nil) })
			_, st := w.run(t, 12*time.Second)
			revoke.Stop()
			again.Stop()
			got := w.device.Received(0)
			if got.Good < 250 || got.Bad+got.OutOfOrder > 0 || st.Sources[0].Captured < 250 || st.Sources[1].Captured < 250 {
				t.Errorf("slot %d: the card got %+v; %+v", n, got, st.Sources)
			}
		})
	}
	if slots < 20 {
		t.Errorf("only %d slots were revoked", slots)
	}
}

// TestMemoryOfAStuckEngineIsNotGivenOutAgain checks that the addresses of an engine that does not stop are not reused
// until it has stopped, whatever happens to the camera.
func TestMemoryOfAStuckEngineIsNotGivenOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		cfg := FPGAConfig{Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Slots: 6, Rate: faultyRate, GiveUp: time.Second}
		c, err := NewFPGACamera(cfg)
		if err != nil {
			t.Fatal(err)
		}
		mine := map[uint64]bool{}
		for _, p := range c.session.pins {
			for _, s := range p.Segments {
				mine[s.IOVA] = true
			}
		}
		if err := b.device.Inject(model.F3); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = c.Run(ctx, func(f *pipeline.Frame) { f.Release() })
		if err := errors.Join(err, c.Close()); !errors.Is(err, xdma.ErrBusy) {
			t.Fatalf("the engine is stuck, and the camera says %v", err)
		}
		other, err := cudahost.Open(cudahost.Config{Backend: "host", Invalidator: b.sim})
		if err != nil {
			t.Fatal(err)
		}
		mem, err := other.AllocHost(tegra.PageSize, cudahost.Default)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		pin, err := b.sim.Pin(uintptr(unsafe.Pointer(&mem.Bytes()[0])), tegra.PageSize, tegra.FromDevice, tegra.WriteBack)
		if !errors.Is(err, tegra.ErrFenced) {
			t.Errorf("memory was pinned, at an address of the stuck engine: %t, %v", pin != nil && mine[pin.Segments[0].IOVA], err)
		}
		if pin != nil {
			_ = pin.Unpin()
		}
		b.device.Reset()
		again := b.open(t, 6)
		collect(t, again, 5, func(f *pipeline.Frame) { f.Release() })
	})
}

// TestARevokedSlotKeepsNoDescriptors checks that revocations of an output's memory, however many, leave no more pins
// and allocations than before.
func TestARevokedSlotKeepsNoDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWay(t, model.FaultPlan{Seed: 1, Rates: map[model.FaultID]float64{model.F11: 0.02}})
		held, first, most := 0, 0, 0
		w.sim.Refuse(func(call uint) unix.Errno { // refuses nothing, only counts
			switch call {
			case uapi.CallPin, uapi.CallAlloc:
				held++
			case uapi.CallPut:
				if first == 0 {
					first = held
				}
				held--
			}
			most = max(most, held)
			return 0
		})
		w.run(t, 20*time.Second)
		if hits := w.device.FaultCounts()[model.F11]; hits < 20 || first == 0 {
			t.Errorf("only %d revocations", hits)
		}
		if most > first+2 {
			t.Errorf("%d pins and allocations at first, %d later", first, most)
		}
	})
}
