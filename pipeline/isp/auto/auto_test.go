// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/isp"
)

// A sensor is a simulated sensor with reflectances by zone under a coloured light, exposure and gain that take effect
// delay frames after they were set, shot noise, and clipping at white.
type sensor struct {
	light    float64    // radiance of white
	color    [3]float64 // the light as seen by the sensor, by colour
	delay    int
	sequence uint64
	pending  []Setting // for the next frames
	rnd      *rand.Rand
	scene    [isp.ZoneRows][isp.ZoneColumns][3]float64
}

func newSensor(seed uint64, delay int, now Setting) *sensor {
	s := &sensor{light: 1, color: [3]float64{1, 1, 1}, delay: delay, rnd: rand.New(rand.NewPCG(seed, 1))}
	for range delay {
		s.pending = append(s.pending, now)
	}
	for y := range s.scene {
		for x := range s.scene[y] {
			grey := 0.03 + 0.5*s.rnd.Float64()
			for c := range 3 {
				s.scene[y][x][c] = grey * (0.8 + 0.4*s.rnd.Float64())
			}
		}
	}
	return s
}

// frame exposes one frame.
func (s *sensor) frame() *isp.Statistics {
	now := s.pending[0]
	s.pending = append(s.pending[1:], s.pending[len(s.pending)-1])
	st := &isp.Statistics{Sequence: s.sequence}
	s.sequence++
	for y := range s.scene {
		for x := range s.scene[y] {
			for c := range 3 {
				v := s.scene[y][x][c] * s.color[c] * s.light * now.light() * (1 + 0.02*s.rnd.NormFloat64())
				const samples = 100
				st.Samples[c] += samples
				if v >= 1 {
					st.Clipped[c] += samples
					continue
				}
				st.Zones[y][x].Sum[c] = uint64(v * 65535 * samples)
				st.Zones[y][x].Count[c] = samples
			}
		}
	}
	return st
}

// set takes effect on the frame that comes delay frames after the last one.
func (s *sensor) set(w Setting) { s.pending[len(s.pending)-1] = w }

var limits = ExposureConfig{
	Min: Setting{100 * time.Microsecond, 1}, Max: Setting{33 * time.Millisecond, 16},
}

func TestExposureSettles(t *testing.T) {
	for delay := 1; delay <= 4; delay++ {
		for _, factor := range []float64{4, 0.25, 30, 1.0 / 30} {
			start := Setting{5 * time.Millisecond, 1}
			e, err := NewExposure(limits, start)
			if err != nil {
				t.Fatal(err)
			}
			s := newSensor(uint64(delay), delay, start)
			s.light = 100
			run := func(n int) (errs []float64) {
				for range n {
					st := s.frame()
					errs = append(errs, Level(st)/0.18-1)
					if w, changed := e.Step(st, 1); changed {
						s.set(w)
						e.Holds(st.Sequence + uint64(delay))
					}
				}
				return errs
			}
			run(30)
			s.light *= factor
			errs := run(60)
			settled, turns := 0, 0
			for i, x := range errs {
				if math.Abs(x) > 0.1 {
					settled = i + 1
				}
				if i > 0 && math.Signbit(x) != math.Signbit(errs[i-1]) && math.Abs(x) > 0.06 {
					turns++
				}
			}
			if most := 10; (factor == 4 || factor == 0.25) && settled > most || settled > 16 || turns > 0 {
				t.Errorf("delay %d, scene %v times as bright: settled after %d frames, turned round %d times: %.2f", delay, factor, settled, turns, errs[:20])
			}
		}
	}
}

func TestExposureLimits(t *testing.T) {
	e, err := NewExposure(limits, Setting{5 * time.Millisecond, 2})
	if err != nil {
		t.Fatal(err)
	}
	s := newSensor(1, 2, Setting{5 * time.Millisecond, 2})
	run := func() (w Setting) {
		for range 50 {
			var changed bool
			if w, changed = e.Step(s.frame(), 1); changed {
				s.set(w)
			}
			if w.Exposure < limits.Min.Exposure || w.Exposure > limits.Max.Exposure || w.Gain < 1 || w.Gain > 16 || w.Gain*256 != math.Floor(w.Gain*256) {
				t.Fatalf("beyond the limits: %v", w)
			}
		}
		return w
	}
	s.light = 0.001
	if w := run(); w != limits.Max {
		t.Errorf("in the dark: %v", w)
	}
	s.light = 1e7
	if w := run(); w != limits.Min {
		t.Errorf("in the glare: %v", w)
	}
	s.light = 10
	if w := run(); w.Gain != 1 && w.Exposure < limits.Max.Exposure*99/100 {
		t.Errorf("gain %v before the exposure is at its limit: %v", w.Gain, w.Exposure)
	}
	e.Freeze(true)
	before := run()
	s.light = 1000
	if w := run(); w != before {
		t.Errorf("frozen at %v, became %v", before, w)
	}
	if w, changed := e.Step(&isp.Statistics{}, 1); changed || w != before {
		t.Errorf("without samples: %v", w)
	}
	e.Freeze(false)
	if w := run(); w == before {
		t.Error("still frozen")
	}
}

func TestExposureHoldsStill(t *testing.T) {
	start := Setting{5 * time.Millisecond, 1}
	e, err := NewExposure(limits, start)
	if err != nil {
		t.Fatal(err)
	}
	s := newSensor(3, 2, start)
	s.light = 100
	changes := 0
	for i := range 200 {
		w, changed := e.Step(s.frame(), 1)
		if changed {
			s.set(w)
		}
		if changed && i > 30 {
			changes++
		}
	}
	if changes > 0 {
		t.Errorf("%d changes in an unchanging scene", changes)
	}
}

func TestWhiteBalanceSettles(t *testing.T) {
	w, err := NewWhiteBalance(WhiteBalanceConfig{}, isp.Gains{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSensor(5, 1, Setting{10 * time.Millisecond, 1})
	s.light = 60
	for _, color := range [][3]float64{{1 / 1.5, 1, 1 / 1.1}, {1 / 1.1, 1, 1 / 2.5}, {1 / 2.2, 1, 1 / 1.2}} {
		s.color = color
		settled := 0
		last := 0.0
		for i := range 60 {
			g := w.Step(s.frame())
			off := max(math.Abs(g.R*color[0]-1), math.Abs(g.B*color[2]-1))
			if off > 0.05 {
				settled = i + 1
			}
			if i > 0 && i < 15 && off > last+0.02 {
				t.Errorf("light %v: error grows from %.3f to %.3f", color, last, off)
			}
			last = off
		}
		if settled > 20 {
			t.Errorf("light %v: settled after %d frames", color, settled)
		}
	}
	w.Freeze(true)
	before := w.Step(s.frame())
	s.color = [3]float64{1, 1, 1}
	if g := w.Step(s.frame()); g != before {
		t.Errorf("frozen at %v, became %v", before, g)
	}
	w.Freeze(false)
	if g := w.Step(&isp.Statistics{}); g != before {
		t.Errorf("without a zone that speaks: %v, want %v", g, before)
	}
	s.color = [3]float64{0.01, 1, 0.01} // no light turns grey into this
	for range 30 {
		if g := w.Step(s.frame()); g != before {
			t.Fatalf("a green wall is taken for grey: %v", g)
		}
	}
}

func TestRefused(t *testing.T) {
	ok := Setting{time.Millisecond, 1}
	for i, c := range []ExposureConfig{
		{},
		{Min: ok},
		{Min: ok, Max: ok, Target: 1},
		{Min: ok, Max: Setting{time.Millisecond, math.Inf(1)}},
		{Min: Setting{time.Millisecond, 1.001}, Max: Setting{time.Millisecond, 1.002}},
	} {
		if _, err := NewExposure(c, ok); !errors.Is(err, ErrConfig) {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if _, err := NewExposure(limits, Setting{}); !errors.Is(err, ErrConfig) {
		t.Errorf("no exposure: %v", err)
	}
	for i, c := range []WhiteBalanceConfig{{Min: isp.Gains{R: 5}}, {Max: isp.Gains{B: 17}}, {Min: isp.Gains{B: math.NaN()}}} {
		if _, err := NewWhiteBalance(c, isp.Gains{}); !errors.Is(err, ErrConfig) {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if _, err := NewWhiteBalance(WhiteBalanceConfig{}, isp.Gains{R: math.NaN()}); !errors.Is(err, ErrConfig) {
		t.Errorf("gain to begin with: %v", err)
	}
}
