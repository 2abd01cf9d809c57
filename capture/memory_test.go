// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
)

// knowing is an allocator that can be asked about addresses, like CUDA.
type knowing struct {
	cudahost.Allocator
	info  cudahost.PointerInfo
	err   error
	asked []uintptr
}

func (k *knowing) Inspect(addr uintptr) (cudahost.PointerInfo, error) {
	k.asked = append(k.asked, addr)
	return k.info, k.err
}

// TestManagedMemoryIsNotPinned checks that memory is inspected before it is pinned for the FPGA, and refused if CUDA
// may move it or does not answer. Nothing remains pinned or allocated.
func TestManagedMemoryIsNotPinned(t *testing.T) {
	unanswered := errors.New("no answer")
	for name, c := range map[string]struct {
		managed bool
		err     error
		want    error
	}{"host": {false, nil, nil}, "managed": {true, nil, cudahost.ErrManaged}, "unanswered": {false, unanswered, unanswered}} {
		t.Run(name, func(t *testing.T) {
			rate := pipeline.Rate{Num: 30, Den: 1}
			b := newBenchOf(t, model.FaultPlan{}, map[int]model.SinkConfig{0: {}}, model.SensorConfig{Width: 64, Height: 16, Period: rate.Period()})
			lift(t, b.sim)
			hw := b.card.Hardware
			memory := &knowing{Allocator: hw.Memory, info: cudahost.PointerInfo{Host: true, Managed: c.managed}, err: c.err}
			hw.Memory = memory
			b.card = NewCard(hw)
			if s, err := NewSurface(memory, hw.Pinner, 5000, cudahost.Default, tegra.ToDevice); !errors.Is(err, c.want) {
				t.Errorf("a surface: %v, want %v", err, c.want)
			} else if err == nil && (memory.asked[0] != s.Buffer.Addr() || s.Close() != nil) {
				t.Errorf("asked about %#x", memory.asked)
			}
			if camera, err := NewFPGACamera(FPGAConfig{Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Rate: rate, Slots: 3}); !errors.Is(err, c.want) {
				t.Errorf("a camera: %v, want %v", err, c.want)
			} else if err == nil && camera.Close() != nil {
				t.Error("the camera does not close")
			}
			slotOfAnOutput(t, b, rate, memory, c.want)
			if n := b.card.Pins(); n.Pins != 0 {
				t.Errorf("%d pins are left", n.Pins)
			}
		})
	}
}

// slotOfAnOutput gives an output a slot allocated elsewhere.
func slotOfAnOutput(t *testing.T, b *bench, rate pipeline.Rate, memory *knowing, want error) {
	t.Helper()
	format, err := pipeline.NewFormat(pipeline.UYVY, 64, 16, rate)
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewFPGAOutput(t.Context(), FPGAOutputConfig{Card: b.card, Format: format})
	if err != nil {
		t.Fatal(err)
	}
	slot, err := slotsOf{b.card.Memory}.AllocSlot(format)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Needs().UseSlot(0, slot); !errors.Is(err, want) {
		t.Errorf("a slot of an output: %v, want %v", err, want)
	}
	if last := memory.asked[len(memory.asked)-1]; last != uintptr(unsafe.Pointer(&slot.Bytes[0])) {
		t.Errorf("asked about %#x at last", last)
	}
	if err := errors.Join(out.Close(), slot.Close()); err != nil {
		t.Error(err)
	}
}
