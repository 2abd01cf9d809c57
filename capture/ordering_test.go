// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// A slowBus delays pixels for a long time, and lets completions overtake them as far as PCI Express allows: the answer
// to a register read does not overtake earlier writes.
type slowBus struct {
	model.Bus
	mu       sync.Mutex
	underWay []posted
}

type posted struct {
	addr  uint64
	bytes []byte
}

const underWayFor = 20 * time.Millisecond

// Write delays pixels. Small writes, of completions and trailers, take effect at once.
func (b *slowBus) Write(addr uint64, p []byte) error {
	if len(p) < 1024 {
		return b.Bus.Write(addr, p)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay = append(b.underWay, posted{addr, bytes.Clone(p)})
	time.AfterFunc(underWayFor, b.arrive)
	return nil
}

// arrive completes all delayed writes.
func (b *slowBus) arrive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.underWay {
		_ = b.Bus.Write(p.addr, p.bytes) // a posted write reports no error
	}
	b.underWay = b.underWay[:0]
}

// slowRegisters are registers behind a slowBus.
type slowRegisters struct {
	fpga.Registers
	bus *slowBus
}

func (r slowRegisters) Read32(off uint32) uint32 {
	v := r.Registers.Read32(off)
	r.bus.arrive()
	return v
}

// A lateKernel is a stage like those on a GPU: a kernel reads the input in place some time after its launch, and the
// stage does not wait for it. It passes the input to launched at the launch, when the kernel could first read it.
type lateKernel struct {
	launched func(*pipeline.Frame)
	work     chan func()
}

func (k *lateKernel) Needs(pipeline.Format) (pipeline.StageNeeds, error) {
	return pipeline.StageNeeds{OnDevice: true}, nil
}

func (k *lateKernel) Plan(pipeline.Format, []pipeline.Format) error { return nil }

func (k *lateKernel) Process(_ context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	k.launched(in)
	done := make(opening)
	out, from := outs[0], in.Bytes
	out.Ready = done
	k.work <- func() {
		time.Sleep(time.Millisecond)
		copy(out.Bytes, from)
		close(done)
	}
	return nil
}

// opening is a fence that opens when the channel is closed.
type opening chan struct{}

func (o opening) Wait(ctx context.Context) error {
	select {
	case <-o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// looking is a sink that examines every frame.
type looking struct{ at func(*pipeline.Frame) }

func (looking) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

func (l looking) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		l.at(f)
		q.Done(f)
	}
}

// A busyCamera is a camera whose goroutine is busy between frames, so that when it looks the next completion is already
// there although no register was read.
type busyCamera struct{ *FPGACamera }

func (c busyCamera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	return c.FPGACamera.Run(ctx, func(f *pipeline.Frame) {
		emit(f)
		time.Sleep(6 * time.Millisecond)
	})
}

// TestKernelIsLaunchedAfterCompletion checks that a kernel that reads frames where the FPGA writes them is launched
// only when their bytes have arrived, not merely when a completion says so; that the kernel's input is kept until it is
// done; and that its output is read only then (GPUDirect RDMA 12.9 §11.7). On a bare stream in write-combined memory
// nothing else would notice a violation, because no CRC is checked there.
func TestKernelIsLaunchedAfterCompletion(t *testing.T) {
	bus := &slowBus{}
	const width, height, frames = 64, 32, 250
	rate := pipeline.Rate{Num: 200, Den: 1}
	b := newBenchOn(t, model.FaultPlan{}, nil, func(inner model.Bus) model.Bus { bus.Bus = inner; return bus },
		model.SensorConfig{Width: width, Height: height, Period: rate.Period(), Bare: true})
	bars := b.device.BARs()
	for i := range bars {
		bars[i].Registers = slowRegisters{bars[i].Registers, bus}
	}
	b.card = NewCard(Hardware{BARs: bars, Interrupts: b.device.Interrupts(), Pinner: b.sim, Memory: b.card.Memory})
	camera, err := NewFPGACamera(FPGAConfig{
		Card: b.card, Width: width, Height: height, Pixel: pipeline.RGGB10, Rate: rate, Flags: cudahost.WriteCombined | cudahost.Mapped, Bare: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	wrong, seen, last := map[string]int{}, map[string]int{}, map[string]uint64{}
	var mu sync.Mutex // used by the stage and the sink
	judge := func(where string, f *pipeline.Frame) {
		mu.Lock()
		defer mu.Unlock()
		want := make([]byte, b.sensor.FrameBytes())
		n, err := model.ReadStamp(f.Bytes, b.sensor.Config().Format)
		if err == nil {
			b.sensor.Frame(n, want)
		}
		if err != nil || !bytes.Equal(f.Bytes, want) || seen[where] > 0 && n <= last[where] { // contents of an earlier frame in this slot are wrong
			wrong[where]++
		}
		last[where] = n
		if seen[where]++; seen["result"] == frames {
			cancel()
		}
	}
	kernel := &lateKernel{launched: func(f *pipeline.Frame) { judge("launch", f) }, work: make(chan func(), 64)}
	var device sync.WaitGroup
	device.Go(func() {
		for work := range kernel.work {
			work()
		}
	})
	graph := pipeline.NewGraph(pipeline.GraphConfig{Allocator: slotsOf{b.card.Memory}})
	picture, err := pipeline.NewFormat(pipeline.UYVY, width, height, rate) // also has two bytes per pixel
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.AddSource("camera", busyCamera{camera}); err != nil {
		t.Fatal(err)
	}
	if err := graph.AddStage("kernel", kernel, "camera", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := graph.Attach(pipeline.OutputConfig{Name: "looking", Sink: looking{func(f *pipeline.Frame) { judge("result", f) }}, Format: picture}); err != nil {
		t.Fatal(err)
	}
	if err := graph.Run(ctx); err != nil {
		t.Error(err)
	}
	close(kernel.work)
	device.Wait()
	if err := graph.Close(); err != nil {
		t.Error(err)
	}
	if err := camera.Close(); err != nil {
		t.Error(err)
	}
	if len(wrong) > 0 || seen["result"] < frames {
		t.Errorf("of %v frames these had other bytes than the FPGA's: %v", seen, wrong)
	}
}
