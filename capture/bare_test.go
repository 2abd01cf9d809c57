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

var fifty = pipeline.Rate{Num: 50, Den: 1}

func newBareBench(t *testing.T, plan model.FaultPlan, rate pipeline.Rate, lines int) *bench {
	t.Helper()
	return newBenchOf(t, plan, nil, model.SensorConfig{Width: 64, Height: lines, Period: rate.Period(), Bare: true})
}

// The frames of a stream without a camera block are correct to the byte; their numbers and times are the host's. The
// second run is a restart like any other: its numbers continue according to the time that has passed.
func TestBareStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBareBench(t, model.FaultPlan{}, fifty, 48)
		c := b.open(t, 5)
		if _, _, err := c.Exposure(); !errors.Is(err, ErrBare) {
			t.Errorf("Exposure: %v", err)
		}
		if _, err := c.SetExposure(time.Millisecond, 1); !errors.Is(err, ErrBare) {
			t.Errorf("SetExposure: %v", err)
		}
		if exposure, gain := c.Adjustable(); exposure || gain {
			t.Errorf("adjustable: exposure %t, gain %t", exposure, gain)
		}
		w := &witness{bench: b, want: make([]byte, b.sensor.FrameBytes()), at: time.Now()}
		period, pause := fifty.Period(), 10*time.Second
		for run := range 2 {
			first := uint64(run) * (29 + uint64(pause/period))
			seen := uint64(0)
			collect(t, c, 30, func(f *pipeline.Frame) {
				x := f.Times
				if x.ExposureEnd != x.Captured || x.ExposureEnd.Sub(x.ExposureStart) != period || x.Uncertainty != period || time.Since(x.Captured) > period {
					t.Errorf("times %+v", x)
				}
				if seen == 0 && (f.Sequence < first || f.Sequence > first+uint64(run)) {
					t.Errorf("run %d begins with frame %d, want about %d", run, f.Sequence, first)
				} else if seen > 0 && f.Sequence != w.last+1 {
					t.Errorf("frame %d after frame %d", f.Sequence, w.last)
				}
				seen++
				w.see(t, f)
			})
			time.Sleep(pause)
		}
		if _, n := b.sim.Faults(); n != 0 {
			t.Errorf("%d SMMU faults", n)
		}
	})
}

// Outputs that hold every slot are no fault of the camera. Frames that the FPGA drops meanwhile leave no gap in the
// numbers.
func TestStarvedBareStreamIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBareBench(t, model.FaultPlan{}, fifty, 48)
		c := b.open(t, 4)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *pipeline.Frame, 100)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx, func(f *pipeline.Frame) { got <- f }) }()
		time.Sleep(time.Minute)
		if r := c.Status().Counters; r["idle"] == 0 || r["restarting"]+r["reopening"] > 0 || len(got) != 4 {
			t.Errorf("%d frames, report %v", len(got), r)
		}
		for n := range uint64(20) {
			var f *pipeline.Frame
			select {
			case f = <-got:
			case <-time.After(time.Minute):
				t.Fatalf("frame %d does not come: %v", n, c.Status().Counters)
			}
			if f.Sequence != n {
				t.Errorf("frame %d, want %d", f.Sequence, n)
			}
			f.Release()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for len(got) > 0 {
			(<-got).Release()
		}
	})
}

// After a packet of wrong length the stream is aligned again, and the numbers account for the lost frames as the
// sensor's do.
func TestBareStreamIsNumberedThroughFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBareBench(t, model.FaultPlan{}, fifty, 320)
		c := b.open(t, 6)
		var ahead []int64 // the sensor's number minus the host's
		n := 0
		collect(t, c, 400, func(f *pipeline.Frame) {
			stamp, err := model.ReadStamp(f.Bytes, b.sensor.Config().Format)
			if err != nil {
				t.Error(err)
			}
			if d := int64(stamp - f.Sequence); len(ahead) == 0 || ahead[len(ahead)-1] != d {
				ahead = append(ahead, d)
			}
			if n++; n%60 == 30 {
				if err := b.device.Inject(model.F8); err != nil {
					t.Error(err)
				}
			}
			f.Release()
		})
		if r := c.Status().Counters; r["restarting"] < 6 {
			t.Errorf("report %v", r)
		}
		for _, d := range ahead {
			if d < ahead[0]-1 || d > ahead[0]+1 {
				t.Errorf("the sensor's numbers were ahead by %v, want the same all the time", ahead)
				break
			}
		}
	})
}

// Under every fault except a stray burst, which only a CRC can detect, no byte is wrong, and the stream recovers as a
// camera's does.
func TestFaultsOnABareStream(t *testing.T) {
	for _, id := range model.FaultIDs() {
		if id == model.F10 {
			continue
		}
		for seed := range uint64(faultSeeds) {
			t.Run(fmt.Sprintf("%v/%d", id, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkBareFault(t, id, seed) })
			})
		}
	}
}

func checkBareFault(t *testing.T, id model.FaultID, seed uint64) {
	want := faultCases[id]
	rates := map[model.FaultID]float64{id: 0.03}
	if id == model.F2 || id == model.F3 {
		rates[model.F8] = 0.02 // the fault needs a stop of the engine, which F8 causes
	}
	w, out := streamFrom(t, newBareBench(t, model.FaultPlan{Seed: seed, Rates: rates}, faultyRate, 320), 20*time.Second)
	t.Logf("%d faults, %d frames, %d lost, silence %v, %v %s", out.Faults[id], out.Captured, out.Lost, w.gap, out.Report, out.Err)
	if out.Faults[id] == 0 {
		t.Error("the fault did not happen")
	}
	if says := strings.Replace(want.says, "out of step", "not as long as the frame", 1); !strings.Contains(out.Log, says) {
		t.Errorf("the log does not say %q:\n%s", says, out.Log)
	}
	if out.Err != "" && !want.ends {
		t.Errorf("the stream ended: %s", out.Err)
	}
	if w.gap > want.silence && out.Err == "" {
		t.Errorf("silent for %v, want at most %v:\n%s", w.gap, want.silence, out.Log)
	}
	if _, n := w.bench.sim.Faults(); n > 0 && !want.refused {
		t.Errorf("the bus refused %d accesses", n)
	}
}

// The CPU does not read write-combined memory: it is refused to a camera whose frames have a CRC, and allowed for a
// bare stream.
func TestWriteCombinedSlotsAreOfBareStreams(t *testing.T) {
	b := newBench(t, 64, 16, fifty)
	cfg := FPGAConfig{Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Rate: fifty, Flags: cudahost.WriteCombined, Slots: 3}
	if c, err := NewFPGACamera(cfg); !errors.Is(err, pipeline.ErrMemory) || !strings.Contains(err.Error(), "check the FPGA's CRC") {
		t.Errorf("%v, %v", c, err)
	}
	cfg.Card, cfg.Bare = newBareBench(t, model.FaultPlan{}, fifty, 16).card, true
	c, err := NewFPGACamera(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c.Format().Memory != pipeline.MemoryWriteCombined || c.buffers[0].Flags() != cudahost.WriteCombined {
		t.Errorf("%v, flags %#x", c.Format(), c.buffers[0].Flags())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
