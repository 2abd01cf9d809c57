// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// newTwoWay returns a card with two jittering cameras and a frame sink.
func newTwoWay(t *testing.T, plan model.FaultPlan) *bench {
	t.Helper()
	sensor := model.SensorConfig{Width: 64, Height: 32, Jitter: 2 * time.Millisecond}
	second := sensor
	second.JitterSeed = 1
	return newBenchOf(t, plan, map[int]model.SinkConfig{0: {}}, sensor, second)
}

// slotsOf allocates a graph's slots from the card's memory.
type slotsOf struct{ memory cudahost.Allocator }

func (s slotsOf) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	b, err := s.memory.AllocHost(f.Size(), cudahost.Default)
	if err != nil {
		return pipeline.Slot{}, err
	}
	return pipeline.Slot{Bytes: b.Bytes(), Close: b.Close}, nil
}

// run streams from both cameras for d, and sends the first one's pictures back to the card.
func (b *bench) run(t *testing.T, d time.Duration) (graph *pipeline.Graph, stats pipeline.Stats) {
	t.Helper()
	graph = pipeline.NewGraph(pipeline.GraphConfig{Allocator: slotsOf{b.card.Memory}})
	rate := pipeline.Rate{Num: 50, Den: 1}
	for i := range 2 {
		c, err := NewFPGACamera(FPGAConfig{Card: b.card, Number: i, Name: fmt.Sprint("camera", i), Width: 64, Height: 32, Pixel: pipeline.RGGB10, Rate: rate})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err := graph.AddSource(fmt.Sprint("camera", i), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := graph.AddStage("isp", copying{}, "camera0", 2); err != nil {
		t.Fatal(err)
	}
	format, err := pipeline.NewFormat(pipeline.UYVY, 64, 32, rate)
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewFPGAOutput(t.Context(), FPGAOutputConfig{Card: b.card, Format: format})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := graph.Attach(pipeline.OutputConfig{Name: "fpga", Sink: out, Format: format}); err != nil {
		t.Fatal(err)
	}
	if _, err := graph.Attach(pipeline.OutputConfig{Name: "second", Sink: counting{}, From: "camera1"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := graph.Run(ctx); err != nil && !errors.Is(err, pipeline.ErrGivenUp) {
		t.Errorf("run: %v", err)
	}
	stats = graph.Stats()
	if err := graph.Close(); err != nil {
		t.Error(err)
	}
	return graph, stats
}

// copying is a stage that relabels the sensor's bytes as a picture; both have two bytes per pixel.
type copying struct{}

func (copying) Needs(pipeline.Format) (pipeline.StageNeeds, error) { return pipeline.StageNeeds{}, nil }

func (copying) Plan(pipeline.Format, []pipeline.Format) error { return nil }

func (copying) Process(_ context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	for _, o := range outs {
		copy(o.Bytes, in.Bytes)
	}
	return nil
}

// counting is a sink that takes frames and gives them back.
type counting struct{}

func (counting) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

func (counting) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		q.Done(f)
	}
}

// With two cameras and an H2C stream on one card, the card gets every picture, in order, with the correct CRC.
func TestTwoCamerasAndAnOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWay(t, model.FaultPlan{})
		_, st := w.run(t, 4*time.Second)
		got := w.device.Received(0)
		for _, s := range st.Sources {
			if s.Captured < 190 || s.Lost != 0 {
				t.Errorf("%s: %+v", s.Name, s)
			}
		}
		for _, o := range st.Outputs {
			if o.Delivered < o.Captured-1 {
				t.Errorf("%+v", o)
			}
		}
		if got.Good < 190 || got.Bad+got.OutOfOrder+got.Missing > 0 || got.Good < st.Outputs[0].Delivered {
			t.Errorf("the card got %+v, delivered %d", got, st.Outputs[0].Delivered)
		}
		if list, n := w.sim.Faults(); n > 0 {
			t.Errorf("%d accesses refused, first %v", n, list[0])
		}
	})
}

// A card that takes fewer frames than it is sent slows nothing down: the output drops frames of its own, and counts
// them.
func TestOutputBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWay(t, model.FaultPlan{})
		if err := w.device.SetSink(0, model.SinkConfig{Rate: 64 * 32 * 2 * 10}); err != nil { // ten frames per second
			t.Fatal(err)
		}
		_, st := w.run(t, 4*time.Second)
		got := w.device.Received(0)
		if s := st.Sources[0]; s.Captured < 190 || s.Lost > 0 {
			t.Errorf("%+v", s)
		}
		o := st.Outputs[0]
		if o.Delivered < 20 || o.Delivered > 60 || o.Dropped["fpga/queue"] < 100 || got.Bad > 0 || got.OutOfOrder > 0 {
			t.Errorf("%+v; the card got %+v", o, got)
		}
	})
}

// Under faults on all channels at once, every frame that the card accepts is correct, and all streams recover.
func TestOutputSurvivesFaults(t *testing.T) {
	for _, id := range model.FaultIDs() {
		if id == model.F3 { // ends everything; see TestStuckEngineComesBackAfterAReset
			continue
		}
		for seed := range uint64(faultSeeds) {
			t.Run(fmt.Sprint(id, "/", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTwoWay(t, model.FaultPlan{Seed: seed, Rates: map[model.FaultID]float64{id: 0.01}})
					_, st := w.run(t, 20*time.Second)
					got := w.device.Received(0)
					t.Logf("%v: %+v; the card got %+v", w.device.FaultCounts(), st.Outputs[0], got)
					for _, e := range w.device.FaultLog() {
						if strings.Contains(e.What, "for ever") {
							return
						}
					}
					if got.Good < 300 || got.Bad+got.OutOfOrder > 0 || got.Good < st.Outputs[0].Delivered {
						t.Errorf("the card got %+v", got)
					}
				})
			})
		}
	}
}

func TestOutputRefusals(t *testing.T) {
	w := newTwoWay(t, model.FaultPlan{})
	format, _ := pipeline.NewFormat(pipeline.I420, 64, 32, pipeline.Rate{})
	if _, err := NewFPGAOutput(t.Context(), FPGAOutputConfig{Card: w.card, Format: format}); err == nil || !strings.Contains(err.Error(), "no name for YU12") {
		t.Errorf("I420: %v", err)
	}
	format, _ = pipeline.NewFormat(pipeline.UYVY, 64, 32, pipeline.Rate{})
	if _, err := NewFPGAOutput(t.Context(), FPGAOutputConfig{Card: w.card, Channel: 7, Format: format}); err == nil {
		t.Error("channel 7 was taken")
	}
}

// If a card stops taking frames while the output ends, nothing waits forever, whichever side ends first.
func TestOutputEndsWhileTheEngineIsStuck(t *testing.T) {
	for _, reset := range []time.Duration{time.Millisecond, 2500 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newTwoWay(t, model.FaultPlan{})
			if err := w.device.SetSink(0, model.SinkConfig{Rate: 64}); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(700*time.Millisecond+reset, w.device.Reset)
			defer timer.Stop()
			began := time.Now()
			w.run(t, 700*time.Millisecond)
			if took := time.Since(began); took > 3500*time.Millisecond { // the wait for the engine takes 2 s, once
				t.Errorf("it took %v to its end", took)
			}
		})
	}
}
