// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/isp"
)

// A bench is the simulated sensor as a camera, and an isp that records its gains.
type bench struct {
	*sensor
	mu     sync.Mutex
	now    Setting
	gains  isp.Gains
	refuse error
}

func (b *bench) Adjustable() (exposure, gain bool) { return true, true }

func (b *bench) Exposure() (time.Duration, float64, error) { return b.now.Exposure, b.now.Gain, nil }

func (b *bench) SetExposure(exposure time.Duration, gain float64) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return 0, b.refuse
	}
	b.now = Setting{exposure, gain}
	b.set(b.now)
	return b.sequence + uint64(b.delay) - 1, nil
}

func (b *bench) SetGains(g isp.Gains) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gains = g
	return nil
}

// The loop works with any delay of the camera, because the camera reports from which frame on a setting applies.
func TestLoop(t *testing.T) {
	for delay := 1; delay <= 4; delay++ {
		start := Setting{5 * time.Millisecond, 1}
		b := &bench{sensor: newSensor(uint64(delay), delay, start), now: start}
		b.light = 100
		b.color = [3]float64{1 / 1.5, 1, 1 / 1.1}
		l, err := NewLoop(LoopConfig{Camera: b, Exposure: &limits, WhiteBalance: &WhiteBalanceConfig{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx, b) }()
		frame := func() float64 {
			b.mu.Lock()
			s := b.frame()
			b.mu.Unlock()
			l.Observe(s)
			for l.State().Frame != s.Sequence || l.State().Level < 0 {
				time.Sleep(50 * time.Microsecond)
			}
			return Level(s)/0.18 - 1
		}
		for range 40 {
			frame()
		}
		if g := l.State().Gains; math.Abs(g.R/1.5-1) > 0.05 || math.Abs(g.B/1.1-1) > 0.05 || g != b.gains {
			t.Errorf("delay %d: gains %v, the isp has %v", delay, g, b.gains)
		}
		b.light *= 4
		for i := range 30 {
			if off := frame(); i >= 10 && math.Abs(off) > 0.1 {
				t.Errorf("delay %d: %d frames after the step the level is off by %.2f", delay, i, off)
			}
		}
		l.Freeze(true, true)
		before := l.State()
		b.light, b.color[0] = b.light/4, 1
		for range 10 {
			frame()
		}
		after := l.State()
		if after.Setting != before.Setting || after.Gains != before.Gains || !after.ExposureFrozen || !after.GainsFrozen {
			t.Errorf("frozen at %+v, became %+v", before, after)
		}
		l.Freeze(false, false)
		b.light = 1e9
		for range 40 {
			frame()
		}
		if s := l.State(); s.Limit != -1 || s.Setting != limits.Min {
			t.Errorf("in the glare: %+v", s)
		}
		b.mu.Lock()
		b.refuse = errors.New("gone")
		b.mu.Unlock()
		b.light = 100
		frame()
		if s := l.State(); s.Fails == 0 || s.Setting != limits.Min {
			t.Errorf("refused: %+v", s)
		}
		cancel()
		<-ended
	}
}

// TestExposureKnowsTheGains checks that pictures are as bright as the target where the isp multiplies green: because red
// needs less than green and no gain may be below 1, or because the configuration says so.
func TestExposureKnowsTheGains(t *testing.T) {
	start := Setting{5 * time.Millisecond, 1}
	for name, c := range map[string]LoopConfig{
		"automatic white balance": {WhiteBalance: &WhiteBalanceConfig{Min: isp.Gains{R: 0.25, B: 0.25}}},
		"configured":              {Gains: isp.Gains{G: 2}},
	} {
		b := &bench{sensor: newSensor(1, 2, start), now: start, gains: c.Gains}
		b.light, b.color = 100, [3]float64{2, 1, 1}
		c.Camera, c.Exposure, c.Logger = b, &limits, slog.New(slog.DiscardHandler)
		l, err := NewLoop(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			l.step(b, b.frame())
		}
		if off := b.gains.G*Level(b.frame())/0.18 - 1; b.gains.G < 1.8 || math.Abs(off) > 0.1 {
			t.Errorf("%s: gains %v: the picture is off by %.2f", name, b.gains, off)
		}
	}
}

// Observe is called on the path of frames.
func TestObserveAllocatesNothing(t *testing.T) {
	l, err := NewLoop(LoopConfig{WhiteBalance: &WhiteBalanceConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	s := &isp.Statistics{}
	if n := testing.AllocsPerRun(100, func() { l.Observe(s) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestByHand checks that a setting made by hand stays until it is released, and that the loop then continues from there
// and knows which frames had it. A setting that the camera refuses changes nothing.
func TestByHand(t *testing.T) {
	start := Setting{5 * time.Millisecond, 1}
	b := &bench{sensor: newSensor(1, 2, start), now: start}
	b.light, b.color = 100, [3]float64{1 / 1.5, 1, 1 / 1.1}
	l, err := NewLoop(LoopConfig{Camera: b, Exposure: &limits, WhiteBalance: &WhiteBalanceConfig{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	run := func() {
		for range 40 {
			l.step(b, b.frame())
		}
	}
	run()
	found := l.State()
	byHand := Setting{found.Setting.Exposure / 4, found.Setting.Gain}
	b.refuse = errors.New("gone")
	if err := l.SetExposure(byHand.Exposure, 0); err == nil || l.State() != found {
		t.Errorf("%v: %+v, before %+v", err, l.State(), found)
	}
	b.refuse = nil
	if err := errors.Join(l.SetExposure(byHand.Exposure, byHand.Gain), l.SetGains(b, 3, 2)); err != nil {
		t.Fatal(err)
	}
	run()
	s := l.State()
	if s.Setting != byHand || b.now != byHand || b.gains != (isp.Gains{R: 3, G: 1, B: 2}) || s.Gains != b.gains || !s.ExposureFrozen || !s.GainsFrozen {
		t.Errorf("set by hand: %+v, the camera has %+v, the isp %+v", s, b.now, b.gains)
	}
	l.Release(true, false)
	run()
	if e, g := l.Frozen(); e || !g || math.Abs(l.State().Setting.light()/found.Setting.light()-1) > 0.1 || b.gains.R != 3 {
		t.Errorf("released: %+v, before %+v", l.State(), found)
	}
	l.Release(false, true)
	run()
	if math.Abs(b.gains.R/1.5-1) > 0.05 {
		t.Errorf("released: %+v", b.gains)
	}
}

// TestNoGainBelowOne checks that the isp gets no gain below 1 if red and blue need less than green.
func TestNoGainBelowOne(t *testing.T) {
	b := &bench{sensor: newSensor(1, 2, Setting{5 * time.Millisecond, 1})}
	b.light, b.color = 100, [3]float64{1 / 0.5, 1, 1 / 0.8}
	l, err := NewLoop(LoopConfig{WhiteBalance: &WhiteBalanceConfig{Min: isp.Gains{R: 0.25, B: 0.25}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		l.step(b, b.frame())
	}
	if g := l.State().Gains; math.Abs(g.R/0.5-1) > 0.05 || g.G != 1 || math.Abs(g.B/0.8-1) > 0.05 {
		t.Errorf("relative to green the gains are %v", g)
	}
	if g := b.gains; g.R != 1 || math.Abs(g.G/2-1) > 0.05 || math.Abs(g.B/1.6-1) > 0.05 {
		t.Errorf("the isp has %v", g)
	}
	if err := l.SetGains(b, 0.5, 2); err != nil || b.gains != (isp.Gains{R: 1, G: 2, B: 4}) || l.State().Gains != (isp.Gains{R: 0.5, G: 1, B: 2}) {
		t.Errorf("set by hand: %v, the isp has %v, %v", l.State().Gains, b.gains, err)
	}
	if err := l.SetGains(b, 0.25, 16); err != nil || b.gains != (isp.Gains{R: 0.25, G: 1, B: 16}) {
		t.Errorf("too far apart: the isp has %v, %v", b.gains, err)
	}
}
