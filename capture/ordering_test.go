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

// A slowBus is one on which pixels are under way for long, and completions overtake them, as far as PCI Express lets them:
// the answer to a read of a register does not overtake the writes before it.
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

// Write keeps pixels back; the small writes of completions and trailers are there at once.
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

// arrive lets everything that is under way come to memory.
func (b *slowBus) arrive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.underWay {
		_ = b.Bus.Write(p.addr, p.bytes) // posted: nobody learns of it
	}
	b.underWay = b.underWay[:0]
}

// slowRegisters are behind a slowBus.
type slowRegisters struct {
	fpga.Registers
	bus *slowBus
}

func (r slowRegisters) Read32(off uint32) uint32 {
	v := r.Registers.Read32(off)
	r.bus.arrive()
	return v
}

// A lateKernel is a stage like those on a GPU: a kernel reads the input where it is, a while after it was launched, and the
// stage does not wait for it. It says what the kernel would have read at its launch.
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

// opening is a fence.
type opening chan struct{}

func (o opening) Wait(ctx context.Context) error {
	select {
	case <-o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// looking is a sink that looks at every frame.
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

// A busyCamera is one whose goroutine has other things to do between frames, so that the next one's completion is there,
// and no register has been read, when it looks.
type busyCamera struct{ *FPGACamera }

func (c busyCamera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	return c.FPGACamera.Run(ctx, func(f *pipeline.Frame) {
		emit(f)
		time.Sleep(6 * time.Millisecond)
	})
}

// TestKernelIsLaunchedAfterCompletion: a kernel that reads the frames where the FPGA writes them is launched when their bytes
// are there, and not when something only says so; it keeps its input until it is done; and what it makes is looked at only
// then (GPUDirect RDMA 12.9 §11.7). On a bare stream in write-combined memory nothing else would notice: no CRC is checked there.
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
	var mu sync.Mutex // the stage and the sink look
	judge := func(where string, f *pipeline.Frame) {
		mu.Lock()
		defer mu.Unlock()
		want := make([]byte, b.sensor.FrameBytes())
		n, err := model.ReadStamp(f.Bytes, b.sensor.Config().Format)
		if err == nil {
			b.sensor.Frame(n, want)
		}
		if err != nil || !bytes.Equal(f.Bytes, want) || seen[where] > 0 && n <= last[where] { // what the slot had before is no frame of now
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
	picture, err := pipeline.NewFormat(pipeline.UYVY, width, height, rate) // two bytes a pixel, too
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
