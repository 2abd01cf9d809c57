// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
	"github.com/tegracast/tegracast/pipeline"
)

// longRun reports whether the long tests should run.
var longRun = os.Getenv("TEGRACAST_LONG") != ""

// newDesignBench returns a bench whose camera is the simulated FPGA design with its test pattern.
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

// TestDesign runs the tests of this package on the FPGA design, simulated by Verilator, behind the model's DMA engine:
// frames of several formats on a channel that accepts a beat only now and then, triggers, exposures, and frames read
// while they arrive. It uses the virtual time of a synctest bubble.
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
		if poll && !longRun {
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

// TestDesignUnderFaults injects faults of the engine while the design streams. It omits F8, a fault of the camera
// model, which the design does not have.
func TestDesignUnderFaults(t *testing.T) {
	for _, id := range model.FaultIDs() {
		if id == model.F8 || id != model.F12 && !longRun {
			continue
		}
		t.Run(id.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rates, silence := map[model.FaultID]float64{id: 0.1}, faultCases[id].silence
				if id == model.F2 || id == model.F3 { // they occur when the engine is stopped after a hang
					rates[model.F1], silence = 0.05, faultCases[model.F1].silence
				}
				b, _ := newDesignBench(t, model.FaultPlan{Seed: 1, Rates: rates}, 160, pipeline.RGGB10, faultyRate)
				w, out := streamFrom(t, b, 2*time.Second)
				w.judge(t, id, silence, out)
			})
		})
	}
}

// picture returns the lines of frame n of a sensor.
func picture(n, lines int) [][]uint16 {
	p := make([][]uint16, lines)
	for y := range p {
		p[y] = make([]uint16, 64)
		for x := range p[y] {
			p[y][x] = sample(n, x, y)
		}
	}
	return p
}

func sample(n, x, y int) uint16 { return uint16(x + y + n) }

// shows reports whether the first lines of a frame are those of picture n, and all others are zero.
func shows(f *pipeline.Frame, n, lines int) bool {
	for i := 0; i < len(f.Bytes); i += 2 {
		x, y, want := i/2%64, i/128, uint16(0)
		if y < lines {
			want = sample(n, x, y)
		}
		if got := uint16(f.Bytes[i]) | uint16(f.Bytes[i+1])<<8; got != want {
			return false
		}
	}
	return true
}

// newSensorBench returns a bench whose camera is the design with a sensor controlled by the test.
func newSensorBench(t *testing.T) (*bench, *rtltest.Design) {
	t.Helper()
	design := rtltest.Open(t, "../fpga/rtl", false)
	rate := pipeline.Rate{Num: 200, Den: 1}
	return newBenchWith(t, model.FaultPlan{}, design, rtltest.Sensor(t, 64, 16, fpga.FourCC(pipeline.RGGB10), rate.Period())), design
}

// TestDesignWithAPoorSensor checks a sensor that delivers too few lines: the frames are flagged, and the camera reports
// it by its user interrupt.
func TestDesignWithAPoorSensor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frames = 20
		b, design := newSensorBench(t)
		for n := range frames {
			design.Shoot(picture(n, 16-n%2)...) // every second one lacks a line
		}
		c := b.open(t, 5)
		padded := uint64(0)
		collect(t, c, frames-2, func(f *pipeline.Frame) {
			defer f.Release()
			short := int(f.Sequence % 2)
			padded += uint64(short)
			if !shows(f, int(f.Sequence), 16-short) || (f.Flags&pipeline.FlagPadded != 0) != (short == 1) {
				t.Errorf("frame %d is wrong, or its flags %v are", f.Sequence, f.Flags)
			}
		})
		if n := c.Status().Counters["padded"]; n < padded-1 || n > padded+1 || padded == 0 {
			t.Errorf("%d frames were padded, %d announced", padded, n)
		}
	})
}

// TestDesignWithAStuckSensor checks a sensor that stops inside a frame, so that the channel waits inside a descriptor.
// The packet is ended by force, and frames come again when the sensor continues.
func TestDesignWithAStuckSensor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, design := newSensorBench(t)
		const shots = 400
		for n := range shots {
			design.Shoot(picture(n, 16)...)
		}
		var log lockedBuffer
		c, err := NewFPGACamera(FPGAConfig{
			Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Rate: pipeline.Rate{Num: 200, Den: 1},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		collect(t, c, 40, func(f *pipeline.Frame) {
			defer f.Release()
			if f.Sequence == 10 {
				time.AfterFunc(4*time.Millisecond, func() { design.Halt(true) })
				time.AfterFunc(2500*time.Millisecond, func() { design.Halt(false) })
			}
			n := last // number of the picture; the sensor has read out none while it was stuck
			for n < shots && !shows(f, n, 16) {
				n++
			}
			if n == shots {
				t.Errorf("frame %d is no picture after %d", f.Sequence, last)
			}
			last = n + 1
		})
		if said := log.String(); !strings.Contains(said, "no frame arrives") || strings.Contains(said, "busy") {
			t.Errorf("the channel did not stop:\n%s", said)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
