package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/pipeline"
)

// breadboard is a chip whose lines remember what was done to them.
type breadboard struct {
	mu    sync.Mutex
	lines map[string]*wire // by consumer, those that were opened last
	busy  map[gpio.Line]bool
}

// wire is a line; levels are when it was driven, and to what.
type wire struct {
	board  *breadboard
	line   gpio.Line
	fail   error         // of Set
	slow   time.Duration // of the next Set
	at     []time.Time
	levels []int
	closed bool
	edges  chan gpio.Edge
	lost   uint64
}

func newBreadboard() *breadboard {
	return &breadboard{lines: map[string]*wire{}, busy: map[gpio.Line]bool{}}
}

func (b *breadboard) open(l gpio.Line, consumer string) (*wire, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.ActiveLow = false
	if b.busy[l] {
		return nil, fmt.Errorf("%w: %s", gpio.ErrBusy, l)
	}
	b.busy[l] = true
	b.lines[consumer] = &wire{board: b, line: l, edges: make(chan gpio.Edge, 64)}
	return b.lines[consumer], nil
}

// Output implements boardLines.
func (b *breadboard) Output(l gpio.Line, consumer string) (outLine, error) {
	w, err := b.open(l, consumer)
	if err != nil {
		return nil, err
	}
	return w, w.Set(0)
}

// Input implements boardLines.
func (b *breadboard) Input(l gpio.Line, consumer string) (inLine, error) {
	w, err := b.open(l, consumer)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// wire finds the line of a consumer.
func (b *breadboard) wire(t *testing.T, consumer string) *wire {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines[consumer] == nil {
		t.Fatalf("%s was never opened", consumer)
	}
	return b.lines[consumer]
}

// open counts the lines that are not closed.
func (b *breadboard) inUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.busy)
}

func (w *wire) Set(v int) error {
	w.board.mu.Lock()
	slow := w.slow
	w.slow = 0
	w.board.mu.Unlock()
	time.Sleep(slow)
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if w.closed {
		return errors.New("closed")
	}
	if w.fail != nil {
		return w.fail
	}
	w.at, w.levels = append(w.at, time.Now()), append(w.levels, v)
	return nil
}

func (w *wire) Edges() <-chan gpio.Edge { return w.edges }

func (w *wire) Lost() uint64 { return w.lost }

func (w *wire) Close() error {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if w.closed {
		return errors.New("closed twice")
	}
	w.closed = true
	delete(w.board.busy, w.line)
	return nil
}

// pulses are the beginnings of a line's pulses, and how long each was.
func (w *wire) pulses() (begin []time.Time, width []time.Duration) {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	for i, v := range w.levels {
		if v == 1 {
			begin = append(begin, w.at[i])
			if i+1 < len(w.at) {
				width = append(width, w.at[i+1].Sub(w.at[i]))
			}
		}
	}
	return begin, width
}

// states is a camera in any state.
type states capture.State

func (s *states) State() capture.State { return capture.State(*s) }

// startPins opens the lines of a configuration on a breadboard and runs them.
func startPins(t *testing.T, section string, cameras ...supervised) (*pins, *breadboard) {
	t.Helper()
	d, err := parseConfig("test", []byte("gpio: "+section+"\n"+good))
	if err != nil {
		t.Fatal(err)
	}
	b := newBreadboard()
	p := newPins(env{log: slog.New(slog.DiscardHandler), lines: b}, func() []supervised { return cameras })
	if err := p.open(d, everything(d).pins); err != nil {
		t.Fatal(err)
	}
	p.start(t.Context())
	t.Cleanup(func() {
		if err := p.drop(nil); err != nil {
			t.Error(err)
		}
		if n := b.inUse(); n > 0 {
			t.Errorf("%d lines are still open", n)
		}
	})
	return p, b
}

// TestTriggerOut: pulses neither drift nor bunch together, the strobe goes with each, and what comes much too late is left out.
func TestTriggerOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := startPins(t, "{trigger: {line: T, rate: 30000/1001, width: 2ms}, strobe: {line: S, width: 5ms}}")
		begin := time.Now()
		period := pipeline.Rate{Num: 30000, Den: 1001}.Period()
		time.Sleep(100*period + period/2)
		trigger, strobe := b.wire(t, "tegracast-trigger"), b.wire(t, "tegracast-strobe")
		for w, width := range map[*wire]time.Duration{trigger: 2 * time.Millisecond, strobe: 5 * time.Millisecond} {
			at, widths := w.pulses()
			if len(at) != 101 || slices.ContainsFunc(widths, func(d time.Duration) bool { return d != width }) {
				t.Fatalf("%v: %d pulses, widths %v", w.line, len(at), widths)
			}
			for i, x := range at {
				if want := begin.Add(time.Duration(i) * period); !x.Equal(want) {
					t.Fatalf("pulse %d is off by %v", i, x.Sub(want))
				}
			}
		}
		b.mu.Lock()
		trigger.slow = 5*period + period/4 // the machine was busy with something else
		b.mu.Unlock()
		time.Sleep(20 * period)
		at, _ := trigger.pulses()
		books := p.all()[triggerLine]
		if n := uint64(len(at)); n != books.pulses || books.missed != 4 || n != 121-4 {
			t.Errorf("%d pulses, books %+v", n, books)
		}
		if late := at[len(at)-1].Sub(begin) % period; late != 0 {
			t.Errorf("afterwards a beat is late by %v", late)
		}
	})
}

// TestStrobeFollowsExposures: a frame is known long after its exposure; those that come are lit from beginning to end.
func TestStrobeFollowsExposures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, length, readout = 33300 * time.Microsecond, 4 * time.Millisecond, 30 * time.Millisecond
		p, b := startPins(t, "{strobe: {line: S}}")
		begin := time.Now()
		for i := range 100 {
			start := begin.Add(time.Duration(i) * period)
			time.Sleep(time.Until(start.Add(length + readout)))
			if i%10 != 5 { // a frame that was lost was exposed, too
				p.seen("camera", &pipeline.Frame{Sequence: uint64(i), Times: pipeline.Times{ExposureStart: start, ExposureEnd: start.Add(length)}})
			}
		}
		time.Sleep(time.Minute)
		at, widths := b.wire(t, "tegracast-strobe").pulses()
		if n := len(at); n < 98 || n > 99+trusted {
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
		if late > 1 { // the first ones have the configured period, not the measured one
			t.Errorf("%d flashes are no good", late)
		}
	})
}

// TestLED: off until all has started, on while all streams, blinking while something recovers or stalls.
func TestLED(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := new(states), new(states)
		*one, *two = states(capture.Streaming), states(capture.Starting)
		p, b := startPins(t, "{led: {line: L, active_low: true}}", one, two)
		led := b.wire(t, "tegracast-led")
		for _, tt := range []struct {
			state  capture.State
			stalls bool
			lit    int // of eight looks in two seconds
		}{
			{capture.Starting, false, 0},
			{capture.Streaming, false, 8},
			{capture.Restarting, false, 4},
			{capture.Resetting, false, 4},
			{capture.Idle, false, 8},
			{capture.Idle, true, 4},
			{capture.Ended, false, 0},
		} {
			*two = states(tt.state)
			p.health = func() (bool, error) {
				if tt.stalls {
					return true, errors.New("stalls")
				}
				return true, nil
			}
			time.Sleep(blinkEvery + blinkEvery/2)
			lit := 0
			for range 8 {
				b.mu.Lock()
				lit += led.levels[len(led.levels)-1]
				b.mu.Unlock()
				time.Sleep(blinkEvery)
			}
			if lit != tt.lit {
				t.Errorf("%v, stalls %v: on %d times of 8, want %d", tt.state, tt.stalls, lit, tt.lit)
			}
			time.Sleep(blinkEvery / 2)
		}
	})
}

// TestReset: the line is active for its time, and the device may be opened only later; another device is left alone.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreadboard()
		p := newPins(env{log: slog.New(slog.DiscardHandler), lines: b}, nil)
		d, err := parseConfig("test", []byte("gpio: {reset: {line: R, active_low: true, assert: 15ms, settle: 300ms}}\n"+
			"sources: [{name: camera, fpga: {device: /dev//tegra_p2p0, width: 320, height: 240}}]\nisp: [{name: isp}]\noutputs: ["+streams+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.open(d, everything(d).pins); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if done, err := p.reset(t.Context(), "/dev/tegra_p2p0"); !done || err != nil || time.Since(begin) != 315*time.Millisecond {
			t.Errorf("%v %v after %v", done, err, time.Since(begin))
		}
		if done, err := p.reset(t.Context(), "/dev/tegra_p2p1"); done || err != nil {
			t.Errorf("another device: %v %v", done, err)
		}
		at, widths := b.wire(t, "tegracast-reset").pulses()
		if len(at) != 1 || !at[0].Equal(begin) || widths[0] != 15*time.Millisecond {
			t.Errorf("pulses %v of %v", at, widths)
		}
		b.wire(t, "tegracast-reset").fail = errors.New("the chip has gone")
		if done, err := p.reset(t.Context(), "/dev/tegra_p2p0"); !done || err == nil || p.all()[resetLine].errors != 1 {
			t.Errorf("a line that fails: %v %v", done, err)
		}
		if err := p.drop(nil); err != nil {
			t.Error(err)
		}
		if done, err := p.reset(t.Context(), "/dev/tegra_p2p0"); done || err != nil {
			t.Errorf("without a line: %v %v", done, err)
		}
	})
}

// TestFramesPassLinesWithoutAllocation: lines look at frames on the frames' own way.
func TestFramesPassLinesWithoutAllocation(t *testing.T) {
	p, b := startPins(t, "{strobe: {line: S}, trigger_in: {line: I}, pps: {line: P}}")
	f := &pipeline.Frame{}
	look := func() {
		f.Sequence++
		f.Times.ExposureStart = time.Now()
		f.Times.ExposureEnd = f.Times.ExposureStart
		p.seen("camera", f)
	}
	for range 2000 { // the matchers' lists get their room
		look()
	}
	b.mu.Lock() // the strobe's own goroutine waits
	defer b.mu.Unlock()
	if n := testing.AllocsPerRun(1000, look); n > 0.5 {
		t.Errorf("%v allocations a frame", n)
	}
}
