// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// bench is a model camera on a simulated SMMU. It checks that everything taken is given back.
type bench struct {
	card   *Card
	sim    *tegrasim.Sim
	sensor *model.Sensor
	device *model.Device
}

func newBench(t testing.TB, width, height int, rate pipeline.Rate) *bench {
	t.Helper()
	return newFaultyBench(t, width, height, rate, model.FaultPlan{})
}

// newFaultyBench returns a bench whose device has the faults of plan. F11 revokes one slot after another.
func newFaultyBench(t testing.TB, width, height int, rate pipeline.Rate, plan model.FaultPlan) *bench {
	t.Helper()
	return newBenchOf(t, plan, nil, model.SensorConfig{Width: width, Height: height, Period: rate.Period()})
}

// newBenchOf returns a bench with several sensors, whose pictures are random, and with frame sinks.
func newBenchOf(t testing.TB, plan model.FaultPlan, sinks map[int]model.SinkConfig, sensors ...model.SensorConfig) *bench {
	t.Helper()
	return newBenchOn(t, plan, sinks, func(bus model.Bus) model.Bus { return bus }, sensors...)
}

// newBenchOn is newBenchOf with a bus between device and memory that on has wrapped.
func newBenchOn(t testing.TB, plan model.FaultPlan, sinks map[int]model.SinkConfig, on func(model.Bus) model.Bus, sensors ...model.SensorConfig) *bench {
	t.Helper()
	sim := newSim(t)
	var made []*model.Sensor
	for _, s := range sensors {
		raw := make([]byte, 2*s.Width*s.Height)
		for i := 0; i < len(raw); i += 2 {
			v := rand.Uint32N(1024)
			raw[i], raw[i+1] = byte(v), byte(v>>8)
		}
		s.Format, s.Frames, s.Shift = fpga.FourCC(pipeline.RGGB10), [][]byte{raw}, 2
		sensor, err := model.NewSensor(s)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, sensor)
	}
	cfg := model.Camera(on(sim), made...)
	cfg.Faults, cfg.Sinks = plan, sinks
	return plugIn(t, sim, cfg, made[0])
}

func newSim(t testing.TB) *tegrasim.Sim {
	t.Helper()
	sim, err := tegrasim.New(tegrasim.Config{Seed: 7, MaxSegment: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	sim.ExpectFaults(func(f tegrasim.Fault) bool { return model.IsStray(f.IOVA) })
	return sim
}

// lift lifts the fence of a function whose engine has not been used.
func lift(t testing.TB, sim *tegrasim.Sim) {
	t.Helper()
	generation, _ := sim.Fenced()
	if err := sim.Resume(generation); err != nil {
		t.Fatal(err)
	}
}

// plugIn runs a device on a simulated SMMU.
func plugIn(t testing.TB, sim *tegrasim.Sim, cfg model.Config, sensor *model.Sensor) *bench {
	t.Helper()
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Invalidator: sim})
	if err != nil {
		t.Fatal(err)
	}
	revocations := uint64(0)
	cfg.Faults.Revoke = func() { revocations++; sim.InvalidateAny(revocations) }
	b := &bench{sim: sim, sensor: sensor}
	if b.device, err = model.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.device.Run(ctx)
	}()
	b.card = NewCard(Hardware{BARs: b.device.BARs(), Interrupts: b.device.Interrupts(), Pinner: sim, Memory: memory})
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) open(t testing.TB, slots int) *FPGACamera {
	t.Helper()
	s := b.sensor.Config()
	c, err := NewFPGACamera(FPGAConfig{
		Card: b.card, Width: s.Width, Height: s.Height, Pixel: pipeline.PixelFormat(s.Format), Slots: slots, Bare: s.Bare,
		Rate: pipeline.Rate{Num: int(time.Second / s.Period), Den: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// collect runs the camera until n frames were emitted and passed to judge.
func collect(t testing.TB, c *FPGACamera, n int, judge func(*pipeline.Frame)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	seen := 0
	err := c.Run(ctx, func(f *pipeline.Frame) {
		if seen++; seen >= n {
			cancel()
		}
		judge(f)
	})
	if err != nil || seen < n {
		t.Fatalf("%d frames of %d, %v", seen, n, err)
	}
}

// Frames are correct to the byte, in order, and have their times, however long consumers hold them. The test streams
// twice, because a camera can be restarted.
func TestFPGACamera(t *testing.T) {
	takesAll(t, newBench(t, 320, 240, pipeline.Rate{Num: 500, Den: 1}), 60)
}

// takesAll takes n frames, twice.
func takesAll(t *testing.T, b *bench, n int) {
	t.Helper()
	c := b.open(t, 5)
	want := make([]byte, b.sensor.FrameBytes())
	for range 2 {
		var held []*pipeline.Frame
		last := -1
		collect(t, c, n, func(f *pipeline.Frame) {
			if int(f.Sequence) <= last {
				t.Errorf("frame %d after %d", f.Sequence, last)
			}
			last = int(f.Sequence)
			if b.sensor.Frame(f.Sequence, want); !bytes.Equal(f.Bytes, want) {
				t.Errorf("frame %d has wrong bytes", f.Sequence)
			}
			x := f.Times
			if age := time.Since(x.ExposureStart); !x.ExposureStart.Before(x.ExposureEnd) || x.ExposureEnd.After(x.Captured) || age < 0 || age > 5*time.Second {
				t.Errorf("frame %d: times %+v", f.Sequence, x)
			}
			held = append(held, f)
			for len(held) > 2 {
				k := rand.IntN(len(held))
				held[k].Release()
				held = append(held[:k], held[k+1:]...)
			}
		})
		for _, f := range held {
			f.Release()
		}
	}
	if _, n := b.sim.Faults(); n != 0 {
		t.Errorf("%d SMMU faults", n)
	}
}

func TestFPGACameraAllocatesNothingPerFrame(t *testing.T) {
	b := newBench(t, 64, 48, pipeline.Rate{Num: 1000, Den: 1})
	c := b.open(t, 4)
	var frames sync.WaitGroup
	next := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	frames.Go(func() {
		_ = c.Run(ctx, func(f *pipeline.Frame) {
			f.Release()
			select {
			case next <- struct{}{}:
			case <-ctx.Done():
			}
		})
	})
	<-next
	if n := testing.AllocsPerRun(100, func() { <-next }); n >= 1 {
		t.Errorf("%v allocations a frame, want none", n)
	}
	cancel()
	frames.Wait()
}

func TestFPGACameraLeakIsNamed(t *testing.T) {
	b := newBench(t, 64, 48, pipeline.Rate{Num: 500, Den: 1})
	c := b.open(t, 4)
	var kept *pipeline.Frame
	collect(t, c, 2, func(f *pipeline.Frame) {
		if kept == nil {
			kept = f
			return
		}
		f.Release()
	})
	if err := c.Close(); !errors.Is(err, pipeline.ErrLeaked) {
		t.Errorf("Close with a frame out: %v", err)
	}
	kept.Release()
}

func TestFPGACameraRefusals(t *testing.T) {
	b := newBench(t, 64, 48, pipeline.Rate{Num: 500, Den: 1})
	good := FPGAConfig{Card: b.card, Width: 64, Height: 48, Pixel: pipeline.RGGB10, Rate: pipeline.Rate{Num: 100, Den: 1}}
	for _, c := range []struct {
		change func(*FPGAConfig)
		says   string
	}{
		{func(c *FPGAConfig) { c.Card = without(c.Card, 0, 1, 2) }, "no BAR"},
		{func(c *FPGAConfig) { c.Card = without(c.Card, 0) }, "no camera block"},
		{func(c *FPGAConfig) { c.Card = without(c.Card, 1, 2) }, "no XDMA registers"},
		{func(c *FPGAConfig) { c.Width = 128 }, "the sensor has 64x48"},
		{func(c *FPGAConfig) { c.Slots = 1 }, "two slots"},
		{func(c *FPGAConfig) { c.Number = 3 }, "camera"},
		{func(c *FPGAConfig) { c.Pixel = pipeline.UYVY }, "UYVY"},
		{func(c *FPGAConfig) { c.Bare, c.Channel = true, 1 }, "c2h 1, the core has 1"},
		{func(c *FPGAConfig) { c.Bare, c.Rate = true, pipeline.Rate{} }, "give its rate"},
	} {
		cfg := good
		c.change(&cfg)
		if _, err := NewFPGACamera(cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want an error with %q", err, c.says)
		}
	}
}

func BenchmarkFPGACamera1080p(b *testing.B) {
	bench := newBench(b, 1920, 1080, pipeline.Rate{Num: 400, Den: 1})
	c := bench.open(b, 8)
	b.ReportAllocs()
	b.SetBytes(int64(bench.sensor.FrameBytes()))
	b.ResetTimer()
	collect(b, c, b.N, func(f *pipeline.Frame) { f.Release() })
}

// without returns the card without some of its BARs.
func without(c *Card, indices ...int) *Card {
	h := c.Hardware
	h.BARs = slices.DeleteFunc(slices.Clone(h.BARs), func(b fpga.BAR) bool { return slices.Contains(indices, b.Index) })
	return NewCard(h)
}
