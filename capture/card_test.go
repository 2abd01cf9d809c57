// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// The first user to open the engine lifts a fence that another process left, after the channels have stopped, and the
// kernel is told how to stop them.
func TestOpenXDMAAfterARevocation(t *testing.T) {
	b := newBench(t, 64, 4, pipeline.Rate{Num: 30, Den: 1})
	mem, err := unix.Mmap(-1, 0, tegra.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	addr := uintptr(unsafe.Pointer(&mem[0]))
	lift(t, b.sim)
	pin, err := b.sim.Pin(addr, tegra.PageSize, tegra.FromDevice, tegra.WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	b.sim.Invalidate(addr, tegra.PageSize)
	if err := errors.Join(except(pin.Unpin(), tegra.ErrRevoked), unix.Munmap(mem)); err != nil {
		t.Fatal(err)
	}
	var halt []fpga.HaltOp
	hw := b.card.Hardware
	hw.Halt = func(list []fpga.HaltOp) error { halt = list; return nil }
	dma := hw.BARs[1].Registers
	const control, setRun = 0x1004, 0x1008                                 // of C2H channel 0 (PG195)
	b.sim.ExpectFaults(func(f tegrasim.Fault) bool { return f.IOVA == 0 }) // the engine is started without descriptors
	dma.Write32(setRun, 1)
	device, err := hw.OpenXDMA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, fenced := b.sim.Fenced(); fenced || dma.Read32(control)&1 != 0 {
		t.Errorf("fenced %t, control %#x", fenced, dma.Read32(control))
	}
	if len(halt) != len(device.Channels()) || halt[0].BAR != 1 {
		t.Fatalf("halt list %+v", halt)
	}
	dma.Write32(setRun, 1)
	for _, op := range halt {
		hw.BARs[op.BAR].Registers.Write32(op.Offset, op.Value)
	}
	if v := dma.Read32(control); v&1 != 0 {
		t.Errorf("halted, control reads %#x", v)
	}
	refused := errors.New("refused")
	hw.Halt = func([]fpga.HaltOp) error { return refused }
	if _, err := hw.OpenXDMA(t.Context()); !errors.Is(err, refused) {
		t.Errorf("a halt list that is refused: %v", err)
	}
}

// countedInterrupts counts the calls that wait for a vector.
type countedInterrupts struct {
	fpga.Interrupts
	waits atomic.Int32
}

func (n *countedInterrupts) Wait(ctx context.Context, vector int) error {
	n.waits.Add(1)
	return n.Interrupts.Wait(ctx, vector)
}

// A polled card streams without waiting for interrupts, although it has some.
func TestPolledCard(t *testing.T) {
	for _, poll := range []bool{false, true} {
		b := newBench(t, 64, 16, pipeline.Rate{Num: 200, Den: 1})
		hw := b.card.Hardware
		counted := &countedInterrupts{Interrupts: hw.Interrupts}
		hw.Interrupts, hw.Poll = counted, poll
		b.card = NewCard(hw)
		w := &witness{bench: b, want: make([]byte, b.sensor.FrameBytes()), at: time.Now()}
		collect(t, b.open(t, 4), 50, func(f *pipeline.Frame) { w.see(t, f) })
		if n := counted.waits.Load(); (n == 0) != poll {
			t.Errorf("poll %t: %d waits for interrupts", poll, n)
		}
	}
}
