// SPDX-License-Identifier: Apache-2.0

package lines_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/lines/linestest"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
)

// states is a camera whose state the test can change concurrently.
type states struct{ atomic.Int64 }

func (s *states) State() capture.State { return capture.State(s.Load()) }

// open opens the lines of a configuration.
func open(t *testing.T, text string, cfg lines.Config) *lines.Lines {
	t.Helper()
	c, err := config.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	p := lines.New(cfg)
	for i := range c.Lines {
		if err := p.Open(&c.Lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// startPins opens the lines of a configuration on a breadboard and runs them.
func startPins(t *testing.T, section string, cfg lines.Config) (*lines.Lines, *linestest.Breadboard) {
	t.Helper()
	b := linestest.New()
	cfg.Board = b
	p := open(t, "gpio: "+section+"\n"+programtest.Small, cfg)
	p.Start(t.Context())
	t.Cleanup(func() {
		if err := p.Close(nil); err != nil {
			t.Error(err)
		}
		if n := b.InUse(); n > 0 {
			t.Errorf("%d lines are still open", n)
		}
	})
	return p, b
}

// TestTriggerOut checks that pulses are at the instants of their rate, that the strobe accompanies each, and that pulses that would
// be much too late are omitted.
func TestTriggerOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := startPins(t, "{trigger: {line: T, rate: 30000/1001, width: 2ms}, strobe: {line: S, width: 5ms}}", lines.Config{})
		rate := pipeline.Rate{Num: 30000, Den: 1001}
		instants, period := group.Instants(rate), rate.Period()
		begin := time.Now()
		first, early, _ := instants.Nearest(begin)
		if early > 0 {
			first++
		}
		time.Sleep(instants.At(first).Sub(begin) + 100*period + period/2)
		trigger, strobe := b.Wire(t, "tegracast-trigger"), b.Wire(t, "tegracast-strobe")
		for w, width := range map[*linestest.Wire]time.Duration{trigger: 2 * time.Millisecond, strobe: 5 * time.Millisecond} {
			at, widths := w.Pulses()
			if len(at) != 101 || slices.ContainsFunc(widths, func(d time.Duration) bool { return d != width }) {
				t.Fatalf("%v: %d pulses, widths %v", w.Line, len(at), widths)
			}
			for i, x := range at {
				if want := instants.At(first + uint64(i)); !x.Equal(want) {
					t.Fatalf("pulse %d is off by %v", i, x.Sub(want))
				}
			}
		}
		trigger.Slow(5*period + period/4)
		time.Sleep(20 * period)
		at, _ := trigger.Pulses()
		books := p.Books()[config.TriggerLine]
		if n := uint64(len(at)); n != books.Pulses || books.Missed != 4 || n != 121-4 {
			t.Errorf("%d pulses, books %+v", n, books)
		}
		if _, late, _ := instants.Nearest(at[len(at)-1]); late != 0 {
			t.Errorf("afterwards a beat is late by %v", late)
		}
	})
}

// TestStrobeFollowsExposures checks that exposures are lit completely, although a frame is only known long after its
// exposure.
func TestStrobeFollowsExposures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, length, readout = 33300 * time.Microsecond, 4 * time.Millisecond, 30 * time.Millisecond
		p, b := startPins(t, "{strobe: {line: S}}", lines.Config{})
		begin := time.Now()
		for i := range 100 {
			start := begin.Add(time.Duration(i) * period)
			time.Sleep(time.Until(start.Add(length + readout)))
			if i%10 != 5 { // a lost frame was exposed as well
				p.Seen("camera", &pipeline.Frame{Sequence: uint64(i), Times: pipeline.Times{ExposureStart: start, ExposureEnd: start.Add(length)}})
			}
		}
		time.Sleep(time.Minute)
		at, widths := b.Wire(t, "tegracast-strobe").Pulses()
		if n := len(at); n < 98 || n > 99+lines.Trusted {
			t.Fatalf("%d flashes of 100 exposures, and then silence", n)
		}
		late := 0
		for i, x := range at {
			since := x.Sub(begin) % period
			if since > length/4 || widths[i] < length-since || widths[i] > length {
				late++
				t.Logf("flash %d: %v after the exposure's beginning, %v long", i, since, widths[i])
			}
		}
		if late > 1 { // the first ones use the configured period, not the measured one
			t.Errorf("%d flashes are no good", late)
		}
	})
}

// TestLED checks that the LED is off until everything has started, on while everything streams, and blinks during a
// recovery or a stall.
func TestLED(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := new(states), new(states)
		one.Store(int64(capture.Streaming))
		two.Store(int64(capture.Starting))
		var stalls atomic.Bool
		_, b := startPins(t, "{led: {line: L, active_low: true}}", lines.Config{
			Cameras: func() []capture.State { return []capture.State{one.State(), two.State()} },
			Health: func() (bool, error) {
				if stalls.Load() {
					return true, errors.New("stalls")
				}
				return true, nil
			},
		})
		led := b.Wire(t, "tegracast-led")
		for _, tt := range []struct {
			state  capture.State
			stalls bool
			lit    int // of eight checks in two seconds
		}{
			{capture.Starting, false, 0},
			{capture.Streaming, false, 8},
			{capture.Restarting, false, 4},
			{capture.Resetting, false, 4},
			{capture.Idle, false, 8},
			{capture.Idle, true, 4},
			{capture.Ended, false, 0},
		} {
			two.Store(int64(tt.state))
			stalls.Store(tt.stalls)
			time.Sleep(lines.BlinkEvery + lines.BlinkEvery/2)
			lit := 0
			for range 8 {
				lit += led.Level()
				time.Sleep(lines.BlinkEvery)
			}
			if lit != tt.lit {
				t.Errorf("%v, stalls %v: on %d times of 8, want %d", tt.state, tt.stalls, lit, tt.lit)
			}
			time.Sleep(lines.BlinkEvery / 2)
		}
	})
}

// TestReset checks that the line is active for its time, that the device may only be opened later, and that other devices
// are unaffected.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := linestest.New()
		p := open(t, "gpio: {reset: {line: R, active_low: true, assert: 15ms, settle: 300ms}}\n"+
			strings.Replace(programtest.Small, "model: {", "fpga: {device: /dev//tegra_p2p0, ", 1), lines.Config{Board: b})
		begin := time.Now()
		if done, err := p.Reset(t.Context(), "/dev/tegra_p2p0"); !done || err != nil || time.Since(begin) != 315*time.Millisecond {
			t.Errorf("%v %v after %v", done, err, time.Since(begin))
		}
		if done, err := p.Reset(t.Context(), "/dev/tegra_p2p1"); done || err != nil {
			t.Errorf("another device: %v %v", done, err)
		}
		at, widths := b.Wire(t, "tegracast-reset").Pulses()
		if len(at) != 1 || !at[0].Equal(begin) || widths[0] != 15*time.Millisecond {
			t.Errorf("pulses %v of %v", at, widths)
		}
		b.Wire(t, "tegracast-reset").Fail = errors.New("the chip has gone")
		if done, err := p.Reset(t.Context(), "/dev/tegra_p2p0"); !done || err == nil || p.Books()[config.ResetLine].Errors != 1 {
			t.Errorf("a line that fails: %v %v", done, err)
		}
		if err := p.Close(nil); err != nil {
			t.Error(err)
		}
		if done, err := p.Reset(t.Context(), "/dev/tegra_p2p0"); done || err != nil {
			t.Errorf("without a line: %v %v", done, err)
		}
	})
}

// TestFramesPassLinesWithoutAllocation checks that lines do not allocate on the path of frames.
func TestFramesPassLinesWithoutAllocation(t *testing.T) {
	p, b := startPins(t, "{strobe: {line: S}, trigger_in: {line: I}, pps: {line: P}}", lines.Config{})
	f := &pipeline.Frame{}
	look := func() {
		f.Sequence++
		f.Times.ExposureStart = time.Now()
		f.Times.ExposureEnd = f.Times.ExposureStart
		p.Seen("camera", f)
	}
	for range 2000 { // fills the matchers' lists
		look()
	}
	defer b.Hold()() // keeps the strobe's own goroutine waiting
	if n := testing.AllocsPerRun(1000, look); n > 0.5 {
		t.Errorf("%v allocations a frame", n)
	}
}
