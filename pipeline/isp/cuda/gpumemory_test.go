// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// TestGPUNoLeak checks that 10,000 frames, with plans in between, leave the memory of device and host unchanged.
func TestGPUNoLeak(t *testing.T) {
	memory := cudatest.GPU(t)
	cache := t.TempDir()
	in := frame(t, memory, format(t, pipeline.RGGB10, 640, 360))
	want := []pipeline.Format{format(t, pipeline.UYVY, 640, 360), format(t, pipeline.I420, 320, 180)}
	outs := make([][]*pipeline.Frame, inFlight+1) // a frame is reused only when its job is done
	for i := range outs {
		outs[i] = frames(t, memory, want)
	}
	n := 5000
	if onCPU() {
		n = 5
	}
	cycle := func(frames int) {
		for _, transfer := range []Transfer{InPlace, Staged} {
			s, err := New(memory, isp.Config{Defects: isp.Defects{Threshold: 50}, Sharpen: 1, Observe: func(*isp.Statistics) {}}, Options{Transfer: transfer, Cache: cache})
			if err != nil {
				t.Fatal(err)
			}
			for i := range frames {
				if i%1000 == 0 {
					if err := s.Plan(in.Format, want); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.Process(t.Context(), in, outs[i%len(outs)]); err != nil {
					t.Fatal(err)
				}
			}
			await(t, outs[(frames-1)%len(outs)]) // the others are done before it
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cycle(3)
	var gone string
	for range 3 { // other programs may use the GPU; a leak shows every time
		before := held(t, memory)
		cycle(n)
		if gone = held(t, memory).more(before); gone == "" {
			return
		}
		t.Log(gone)
	}
	t.Error(gone)
}

// holding is memory in bytes: used on the device, resident in the process, and pinned by the driver as host memory of
// CUDA.
type holding struct{ device, resident, pinned int }

// more describes what has grown by more than normal fluctuation, or returns "".
func (h holding) more(than holding) string {
	device, resident, pinned := h.device-than.device, h.resident-than.resident, h.pinned-than.pinned
	if device <= 4<<20 && resident <= 32<<20 && pinned <= 8<<20 {
		return ""
	}
	return fmt.Sprintf("the device's memory in use has grown by %d bytes, the process by %d, its mappings of devices by %d", device, resident, pinned)
}

func held(t *testing.T, memory *cudahost.CUDA) (h holding) {
	t.Helper()
	free, total, err := memory.Device.FreeMemory()
	if err != nil {
		t.Fatal(err)
	}
	h.device = total - free
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages int
	if _, err := fmt.Sscan(string(b), new(int), &pages); err != nil {
		t.Fatal(err)
	}
	h.resident = pages * os.Getpagesize()
	if b, err = os.ReadFile("/proc/self/maps"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var from, to int
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err == nil && strings.Contains(line, " /dev/") {
			h.pinned += to - from
		}
	}
	return h
}

// unreadable is a source in write-combined memory.
type unreadable struct{ format pipeline.Format }

func (u unreadable) Format() (f pipeline.Format) {
	f = u.format
	f.Memory, f.Rate = pipeline.MemoryWriteCombined, pipeline.Rate{Num: 30, Den: 1}
	return f
}

func (unreadable) Run(context.Context, func(*pipeline.Frame)) error { return nil }

func (unreadable) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

// TestGPUWriteCombined checks that frames that the CPU must not read are read and written like others, and that the
// graph lets the stage read them.
func TestGPUWriteCombined(t *testing.T) {
	memory := cudatest.GPU(t)
	rnd := rand.New(rand.NewPCG(9, 24))
	c := isp.Config{Demosaic: isp.Malvar, Gains: isp.Gains{R: 2, B: 1.5}, Observe: func(*isp.Statistics) {}}
	plain := frame(t, memory, format(t, pipeline.RGGB12, 320, 120))
	fill(plain.Bytes, 0, rnd)
	want := []pipeline.Format{format(t, pipeline.UYVY, 320, 120), format(t, pipeline.NV12, 160, 60)}
	ref, _ := reference(t, c, plain, want)
	combined := func(f pipeline.Format) *pipeline.Frame {
		return frameOf(t, memory, f, cudahost.Mapped|cudahost.WriteCombined)
	}
	for _, transfer := range []Transfer{InPlace, Staged} {
		s := newStage(t, memory, c, Options{Transfer: transfer})
		g := pipeline.NewGraph(pipeline.GraphConfig{})
		if err := errors.Join(g.AddSource("camera", unreadable{plain.Format}), g.AddStage("isp", s, "camera", 2)); err != nil {
			t.Fatal(err)
		}
		if err := s.Plan(plain.Format, want); err != nil {
			t.Fatal(err)
		}
		in, outs := combined(plain.Format), []*pipeline.Frame{combined(want[0]), combined(want[1])}
		copy(in.Bytes, plain.Bytes)
		if err := s.Process(t.Context(), in, outs); err != nil {
			t.Fatal(err)
		}
		await(t, outs)
		compare(t, fmt.Sprintf("write-combined, transfer %d", transfer), outs, ref)
	}
}

// TestGPUWithoutMemory checks that a plan for which the device has too little memory is refused without other effects:
// the previous one remains in use, and the new one can be made when there is memory again.
func TestGPUWithoutMemory(t *testing.T) {
	memory := cudatest.GPU(t)
	rnd := rand.New(rand.NewPCG(10, 25))
	c := isp.Config{Gains: isp.Gains{R: 1.5}}
	s := newStage(t, memory, c, Options{Transfer: Staged})
	small, large := frame(t, memory, format(t, pipeline.RGGB10, 64, 32)), format(t, pipeline.RGGB10, 4096, 2048)
	fill(small.Bytes, 0, rnd)
	want := []pipeline.Format{format(t, pipeline.UYVY, 64, 32)}
	ref, _ := reference(t, c, small, want)
	outs := frames(t, memory, want) // host memory may need device memory as well
	works := func(when string) {
		t.Helper()
		clear(outs[0].Bytes)
		if err := s.Process(t.Context(), small, outs); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		await(t, outs)
		compare(t, when, outs, ref)
	}
	if err := s.Plan(small.Format, want); err != nil {
		t.Fatal(err)
	}
	works("at first")
	var pieces []*cudahost.DeviceMemory
	for size := 1 << 32; size >= 1<<20; size /= 2 {
		for {
			m, err := memory.Device.AllocDevice(size)
			if err != nil {
				break
			}
			pieces = append(pieces, m)
		}
	}
	big := []pipeline.Format{format(t, pipeline.UYVY, 4096, 2048)}
	var e *cudahost.Error
	if err := s.Plan(large, big); !errors.As(err, &e) || e.Name != "CUDA_ERROR_OUT_OF_MEMORY" || e.Sticky() {
		t.Errorf("without memory: %v", err)
	}
	works("without memory")
	for _, m := range pieces {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Plan(large, big); err != nil {
		t.Errorf("with memory again: %v", err)
	}
	if err := s.Plan(small.Format, want); err != nil {
		t.Fatal(err)
	}
	works("at last")
}
