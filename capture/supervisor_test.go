// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// trigger starts one exposure of a triggered camera.
func trigger(c *FPGACamera) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.camera.Trigger()
}

// A camera that waits for its trigger is idle, not broken, however long it waits.
func TestUntriggeredCameraIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		recorder := pipeline.NewRecorder(64)
		c, err := NewFPGACamera(FPGAConfig{Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Triggered: true, Recorder: recorder})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Trigger(); !errors.Is(err, ErrStopped) {
			t.Errorf("a trigger of a camera that does not run: %v", err)
		}
		frames := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- c.Run(ctx, func(f *pipeline.Frame) { frames++; f.Release() })
		}()
		for range 3 {
			time.Sleep(time.Minute)
			if r := c.Status().Counters; r["idle"] == 0 || r["restarting"]+r["reopening"] > 0 || !c.Status().Idle {
				t.Errorf("idle %v, report %v", c.Status().Idle, r)
			}
			if err := c.Trigger(); err != nil {
				t.Error(err)
			}
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

// Outputs that hold every slot are no fault of the camera: it waits, and continues with the slots that are released.
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
		if r := c.Status().Counters; r["idle"] == 0 || r["restarting"]+r["reopening"] > 0 {
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
		if last < 2900 { // a minute at 50 frames per second was lost, and counted
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

// A camera runs twice: everything it took is given back in between, and a fault of the first run does not affect the
// second.
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

// Idle time does not count towards recovery: a camera that was idle for long still gets its full time to recover.
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
		trigger(c)
		time.Sleep(time.Second)
		if n := frames.Load(); n != 1 {
			t.Errorf("%d frames after the reset", n)
		}
		// A hang in a triggered frame is detected, although triggers are far apart.
		if err := b.device.Inject(model.F1); err != nil {
			t.Fatal(err)
		}
		trigger(c)
		time.Sleep(2 * time.Second)
		trigger(c)
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

// An engine that stays busy is left alone. Once the device was reset, frames come again without a restart of the
// program.
func TestStuckEngineComesBackAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		c := b.open(t, 4)
		if err := b.device.Inject(model.F3); err != nil {
			t.Fatal(err)
		}
		if err := b.device.Inject(model.F8); err != nil { // makes the engine stop
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

// resets counts the resets that a recovery performs.
type resets struct{ function, line int }

// stuck opens a camera whose function level reset returns err, and resets the device if err is nil, and whose reset
// line works. It then makes the engine stuck, and waits for frames. It returns the longest silence.
func (n *resets) stuck(t *testing.T, patience time.Duration, log *lockedBuffer, err error) (silence time.Duration, report map[string]uint64) {
	t.Helper()
	b := newBench(t, 64, 16, faultyRate)
	held := func(what string) {
		if s := b.card.Pins(); s.Pins != 0 || s.Bytes != 0 {
			t.Errorf("%d pins at the reset of the %s", s.Pins, what)
		}
	}
	hw := b.card.Hardware
	hw.Reset = func() error {
		held("function")
		if n.function++; err == nil {
			b.device.Reset()
		}
		return err
	}
	b.card = NewCard(hw)
	c, openErr := NewFPGACamera(FPGAConfig{
		GiveUp: patience, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Rate: faultyRate,
		Reset: func(context.Context) (bool, error) {
			held("line")
			n.line++
			b.device.Reset()
			return true, nil
		},
	})
	if openErr != nil {
		t.Fatal(openErr)
	}
	for range 2 {
		for _, id := range []model.FaultID{model.F3, model.F8} { // the engine gets stuck, then has to stop
			if err := b.device.Inject(id); err != nil {
				t.Fatal(err)
			}
		}
		last := time.Now()
		collect(t, c, 200, func(f *pipeline.Frame) {
			silence, last = max(silence, time.Since(last)), time.Now()
			f.Release()
		})
	}
	report = c.Status().Counters
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	return silence, report
}

// The function of an engine that stays stuck for a quarter of the recovery time is reset, once; the reset line is then
// not used.
func TestFunctionLevelResetComesBeforeTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = giveUp
		var n resets
		var log lockedBuffer
		silence, report := n.stuck(t, patience, &log, nil)
		if silence < patience/4 || silence > 13*time.Second { // docs/faults.md, F3
			t.Errorf("silent for %v, want a little more than %v", silence, patience/4)
		}
		t.Log("silent for", silence)
		if n != (resets{2, 0}) || report["resetting"] != 2 || strings.Count(log.String(), "function was reset (function level reset)") != 2 {
			t.Errorf("%+v in two recoveries, report %v\n%s", n, report, log.String())
		}
	})
}

// If the function has no reset, or if its reset fails, the FPGA's reset line is pulsed, once, after half of the
// recovery time.
func TestResetLineIsTheLastResort(t *testing.T) {
	for says, err := range map[string]error{
		"has no function level reset":             fmt.Errorf("reset: %w", syscall.EOPNOTSUPP),
		"function level reset of the FPGA failed": syscall.EIO,
	} {
		synctest.Test(t, func(t *testing.T) {
			const patience = 16 * time.Second
			var n resets
			var log lockedBuffer
			silence, report := n.stuck(t, patience, &log, err)
			if silence < patience/2 || silence > patience/2+5*time.Second {
				t.Errorf("silent for %v, want a little more than %v", silence, patience/2)
			}
			if n != (resets{2, 2}) || report["resetting"] != 2 || strings.Count(log.String(), says) != 2 || strings.Count(log.String(), "reset line was pulsed") != 2 {
				t.Errorf("%+v in two recoveries, report %v\n%s", n, report, log.String())
			}
		})
	}
}

// Cameras of one card that recover at the same time reset its function once.
func TestOneResetForAllUsersOfACard(t *testing.T) {
	done := 0
	c := NewCard(Hardware{Reset: func() error { done++; return nil }})
	since := time.Now()
	for range 2 {
		if err := c.resetFunction(since); err != nil {
			t.Error(err)
		}
	}
	if done != 1 {
		t.Errorf("%d resets in one recovery", done)
	}
	time.Sleep(time.Millisecond)
	if err := c.resetFunction(time.Now()); err != nil || done != 2 {
		t.Errorf("%d resets after the next recovery has begun, %v", done, err)
	}
	if err := NewCard(Hardware{}).resetFunction(since); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("hardware without a reset: %v", err)
	}
}

// TestFramesThatWaitAreNoStall checks that a process that takes no frames for a long time loses only those that the
// FPGA drops, and none that are in the ring.
func TestFramesThatWaitAreNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		const slots, held = 4, 10
		c := b.open(t, slots)
		var sequences []uint64
		collect(t, c, 20, func(f *pipeline.Frame) {
			if sequences = append(sequences, f.Sequence); len(sequences) == held {
				time.Sleep(5 * time.Second)
			}
			f.Release()
		})
		if r := c.Status().Counters; r["restarting"]+r["reopening"] > 0 {
			t.Errorf("report %v", r)
		}
		for i := 1; i < held+slots-1; i++ {
			if sequences[i] != sequences[i-1]+1 {
				t.Errorf("frame %d has number %d, the one before %d", i, sequences[i], sequences[i-1])
			}
		}
	})
}

// TestSilence checks that time during which the process was held up does not count as silence of the FPGA.
func TestSilence(t *testing.T) {
	const interval = 100 * time.Millisecond
	q := newSilence(interval)
	now := q.last
	after := func(d time.Duration) time.Duration {
		now = now.Add(d)
		return q.length(now)
	}
	for _, x := range []struct{ wait, silent, late time.Duration }{
		{interval, interval, 0},
		{interval + interval/5, 2*interval + interval/5, 0}, // a timer is never exact
		{31 * interval, 3*interval + interval/5, 30 * interval},
		{interval, 4*interval + interval/5, 30 * interval},
	} {
		if silent := after(x.wait); silent != x.silent || q.late != x.late {
			t.Errorf("after %v: silent for %v, late by %v, want %v and %v", x.wait, silent, q.late, x.silent, x.late)
		}
	}
	q.end()
	if silent := after(interval); silent != interval || q.late != 0 {
		t.Errorf("after a frame: silent for %v, late by %v", silent, q.late)
	}
}

// TestACameraThatFailsAfterEachFrame checks that such a camera waits longer each time, is not given up, and logs one
// line per minute, and that the log reports when it works again.
func TestACameraThatFailsAfterEachFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 64, 16, faultyRate)
		var log lockedBuffer
		c, err := NewFPGACamera(FPGAConfig{
			Card: b.card, Width: 64, Height: 16, Pixel: pipeline.RGGB10, Rate: faultyRate, GiveUp: 5 * time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		const trouble = 5 * time.Minute
		begin, last, pause, faults := time.Now(), time.Now(), time.Duration(0), 0
		ctx, cancel := context.WithTimeout(t.Context(), trouble+2*time.Minute)
		defer cancel()
		err = c.Run(ctx, func(f *pipeline.Frame) {
			f.Release()
			if time.Since(begin) > trouble {
				return
			}
			pause, last = time.Since(last), time.Now()
			faults++
			if err := b.device.Inject(model.F12); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if pause < lastPause || pause > 2*lastPause || faults > int(trouble/lastPause)+20 {
			t.Errorf("after %d faults it waits for %v, want %v", faults, pause, lastPause)
		}
		text := log.String()
		if n := strings.Count(text, "source reopening"); n < 4 || n > 6 || strings.Count(text, "\n") != n+2 || strings.Count(text, "source streaming") != 1 {
			t.Errorf("the log of 5 minutes of faults, and their end:\n%s", text)
		}
	})
}
