package capture

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tegracast/fpga/model"
	"tegracast/pipeline"
)

// A camera that waits for its trigger is idle, not broken, for as long as it takes.
func TestUntriggeredCameraIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		recorder := pipeline.NewRecorder(64)
		c, err := NewFPGACamera(FPGAConfig{Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Triggered: true, Recorder: recorder})
		if err != nil {
			t.Fatal(err)
		}
		frames := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- c.Run(ctx, func(f *pipeline.Frame) { frames++; f.Release() })
		}()
		for range 3 {
			time.Sleep(time.Minute)
			if r := c.Report(); r["idle"] == 0 || r["restarting"]+r["reopening"] > 0 || !c.Idle() {
				t.Errorf("idle %v, report %v", c.Idle(), r)
			}
			c.Trigger()
			time.Sleep(time.Second)
		}
		cancel()
		if err := <-ended; err != nil || frames != 3 {
			t.Errorf("%d frames of 3 triggers, %v", frames, err)
		}
		var dump strings.Builder
		if err := recorder.Dump(&dump); err != nil || strings.Count(dump.String(), "state") < 4 {
			t.Errorf("flight recorder: %v\n%s", err, dump.String())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Outputs that hold every slot are no fault of the camera: it waits, and goes on with the slots that come back.
func TestStarvedCameraIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		c := b.open(t, 4)
		var held []*pipeline.Frame
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *pipeline.Frame, 100)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx, func(f *pipeline.Frame) { got <- f }) }()
		for range 4 {
			held = append(held, <-got)
		}
		time.Sleep(time.Minute)
		if r := c.Report(); r["idle"] == 0 || r["restarting"]+r["reopening"] > 0 {
			t.Errorf("report %v", r)
		}
		for _, f := range held {
			f.Release()
		}
		var last uint64
		for range model.FrameBuffers + 1 { // the first ones have waited in the FPGA
			f := <-got
			last = f.Sequence
			f.Release()
		}
		if last < 2900 { // a minute at 50 frames a second was lost, and counted
			t.Errorf("the frame after those that the FPGA had kept is %d", last)
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

// Two lives of one camera: what it took is given back in between, and a fault of the first does not reach the second.
func TestCameraRunsAgainAfterAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		c := b.open(t, 4)
		for _, id := range []model.FaultID{model.F12, model.F5, model.F8} {
			if err := b.device.Inject(id); err != nil {
				t.Fatal(err)
			}
			collect(t, c, 100, func(f *pipeline.Frame) { f.Release() })
			if n := b.device.FaultCounts()[id]; n != 1 {
				t.Errorf("%v happened %d times", id, n)
			}
		}
	})
}

// Idleness is no part of a recovery: a camera that has waited for long gets its full time to recover.
func TestIdleCameraRecoversFromAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		c, err := NewFPGACamera(FPGAConfig{Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Triggered: true})
		if err != nil {
			t.Fatal(err)
		}
		var frames atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- c.Run(ctx, func(f *pipeline.Frame) { frames.Add(1); f.Release() })
		}()
		time.Sleep(2 * time.Minute)
		b.device.Reset()
		time.Sleep(time.Second)
		c.Trigger()
		time.Sleep(time.Second)
		if n := frames.Load(); n != 1 {
			t.Errorf("%d frames after the reset", n)
		}
		// A hang in a triggered frame is seen, though triggers are far apart.
		if err := b.device.Inject(model.F1); err != nil {
			t.Fatal(err)
		}
		c.Trigger()
		time.Sleep(time.Second)
		c.Trigger()
		time.Sleep(time.Second)
		if n := frames.Load(); n != 2 {
			t.Errorf("%d frames, want the one after the hang, too", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An engine that stays busy is left alone; once the device was reset, frames come again without a restart of the program.
func TestStuckEngineComesBackAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		c := b.open(t, 4)
		if err := b.device.Inject(model.F3); err != nil {
			t.Fatal(err)
		}
		if err := b.device.Inject(model.F8); err != nil { // the occasion to stop
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, b.device.Reset)
		last := time.Now()
		silence := time.Duration(0)
		collect(t, c, 300, func(f *pipeline.Frame) {
			silence, last = max(silence, time.Since(last)), time.Now()
			f.Release()
		})
		if silence < 5*time.Second || silence > 14*time.Second {
			t.Errorf("silent for %v, want about until the reset after 10 s", silence)
		}
	})
}

// An engine that stays stuck for half of the time of a recovery gets the FPGA's reset line pulsed, once.
func TestResetLineIsTheLastResort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		const patience = 16 * time.Second
		pulses := 0
		c, err := NewFPGACamera(FPGAConfig{
			GiveUp: patience,
			Card:   b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Rate: faultyRate,
			Reset: func(context.Context) (bool, error) {
				if s := b.card.Pins(); s.Pins != 0 || s.Bytes != 0 {
					t.Errorf("%d pins at the reset", s.Pins)
				}
				pulses++
				b.device.Reset()
				return true, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, id := range []model.FaultID{model.F3, model.F8} { // stuck, and the occasion to stop
				if err := b.device.Inject(id); err != nil {
					t.Fatal(err)
				}
			}
			last, silence := time.Now(), time.Duration(0)
			collect(t, c, 200, func(f *pipeline.Frame) {
				silence, last = max(silence, time.Since(last)), time.Now()
				f.Release()
			})
			if silence < patience/2 || silence > patience/2+5*time.Second {
				t.Errorf("silent for %v, want a little more than %v", silence, patience/2)
			}
		}
		if r := c.Report(); pulses != 2 || r["resetting"] != 2 {
			t.Errorf("%d pulses in two recoveries, report %v", pulses, r)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
