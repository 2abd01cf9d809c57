// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
	"github.com/tegracast/tegracast/pipeline"
)

// newDesignBench is a bench whose camera is the FPGA's design in simulation, with its test pattern.
func newDesignBench(t testing.TB, plan model.FaultPlan, height int, pixel pipeline.PixelFormat, rate pipeline.Rate) (*bench, *rtltest.Design) {
	t.Helper()
	design := rtltest.Open(t, "../fpga/rtl", true)
	return newBenchWith(t, plan, design, rtltest.Sensor(t, 64, height, fpga.FourCC(pixel), rate.Period())), design
}

// newBenchWith puts a design behind the model's DMA engine.
func newBenchWith(t testing.TB, plan model.FaultPlan, design *rtltest.Design, sensor *model.Sensor) *bench {
	t.Helper()
	sim := newSim(t)
	cfg := model.Camera(sim)
	cfg.C2H, cfg.Designs, cfg.Faults = []model.Interface{model.Stream}, []model.Design{design}, plan
	return plugIn(t, sim, cfg, sensor)
}

// TestDesign runs the tests of this package on the FPGA's design, simulated by Verilator, behind the model's DMA engine: frames of
// several formats, with a channel that accepts a beat now and then; triggers; exposures; frames that are read while they arrive.
// Time is that of a bubble.
func TestDesign(t *testing.T) {
	rate := pipeline.Rate{Num: 200, Den: 1}
	for name, c := range map[string]struct {
		pixel        pipeline.PixelFormat
		ready, burst uint32
	}{
		"8 bits": {pipeline.RGGB8, 256, 1}, "10 bits": {pipeline.RGGB10, 256, 1}, "12 bits": {pipeline.RGGB12, 256, 1},
		"back pressure": {pipeline.RGGB10, 100, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, design := newDesignBench(t, model.FaultPlan{}, 16, c.pixel, rate)
				design.Pressure(c.ready, c.burst)
				takesAll(t, b, 20)
			})
		})
	}
	for _, poll := range []bool{false, true} {
		if poll && os.Getenv("TEGRACAST_LONG") == "" {
			continue
		}
		t.Run(fmt.Sprintf("triggers/%t", poll), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := newDesignBench(t, model.FaultPlan{}, 16, pipeline.RGGB10, faultyRate)
				missesTriggers(t, b, poll, 200*time.Millisecond)
			})
		})
		t.Run(fmt.Sprintf("slices/%t", poll), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := newDesignBench(t, model.FaultPlan{}, 160, pipeline.RGGB10, faultyRate)
				r, err := readSlicesFrom(t, b, poll, func(*reader) { time.Sleep(500 * time.Millisecond) })
				if err != nil || r.whole < 20 || r.early < r.whole || r.misled > 0 || r.damaged > 0 {
					t.Errorf("%d whole of %d, %d early, %d damaged, %d misled: %v", r.whole, r.frames, r.early, r.damaged, r.misled, err)
				}
			})
		})
	}
	t.Run("exposure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := newDesignBench(t, model.FaultPlan{}, 16, pipeline.RGGB10, rate)
			changesExposure(t, b, 0)
		})
	})
}

// TestDesignUnderFaults has faults of the engine while the design streams. F8 is one of the camera, and it has none.
func TestDesignUnderFaults(t *testing.T) {
	for _, id := range model.FaultIDs() {
		if some := id == model.F5 || id == model.F12; id == model.F8 || !some && os.Getenv("TEGRACAST_LONG") == "" {
			continue
		}
		t.Run(id.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rates, silence := map[model.FaultID]float64{id: 0.1}, faultCases[id].silence
				if id == model.F2 || id == model.F3 { // when the engine is stopped: after it hangs
					rates[model.F1], silence = 0.05, faultCases[model.F1].silence
				}
				b, _ := newDesignBench(t, model.FaultPlan{Seed: 1, Rates: rates}, 160, pipeline.RGGB10, faultyRate)
				w, out := streamFrom(t, b, 2*time.Second)
				w.judge(t, id, silence, out)
			})
		})
	}
}

// TestDesignWithAPoorSensor: a sensor that delivers too little. The frames are flagged, and the camera says so by its user interrupt.
func TestDesignWithAPoorSensor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const height, frames = 16, 20
		design := rtltest.Open(t, "../fpga/rtl", false)
		for n := range frames {
			lines := make([][]uint16, height-n%2) // each second one lacks a line
			for y := range lines {
				lines[y] = make([]uint16, 64)
				for x := range lines[y] {
					lines[y][x] = uint16(x + y + n)
				}
			}
			design.Shoot(lines...)
		}
		rate := pipeline.Rate{Num: 200, Den: 1}
		b := newBenchWith(t, model.FaultPlan{}, design, rtltest.Sensor(t, 64, height, fpga.FourCC(pipeline.RGGB10), rate.Period()))
		c := b.open(t, 5)
		padded := uint64(0)
		collect(t, c, frames-2, func(f *pipeline.Frame) {
			defer f.Release()
			short := f.Sequence%2 == 1
			if short {
				padded++
			}
			at := 2 * (64*(height-1) + 1) // a sample of the last line
			want := uint16(height + int(f.Sequence))
			if short {
				want = 0
			}
			if got := uint16(f.Bytes[at]) | uint16(f.Bytes[at+1])<<8; got != want || (f.Flags&pipeline.FlagPadded != 0) != short {
				t.Errorf("frame %d: flags %v, a sample of the last line is %d, want %d", f.Sequence, f.Flags, got, want)
			}
		})
		if n := c.Status().Counters["padded"]; n < padded-1 || n > padded+1 || padded == 0 {
			t.Errorf("%d frames were padded, %d announced", padded, n)
		}
	})
}
