// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// counter is an FPGA's timestamp counter that is off by ppm and is read with varying delays.
type counter struct {
	start time.Time
	ppm   float64
	ahead time.Duration
	rng   *rand.Rand
}

func (c *counter) now(t time.Time) uint64 {
	return uint64(float64(t.Sub(c.start))*(1+c.ppm*1e-6)) + uint64(c.ahead)
}

func (c *counter) read() uint64 {
	time.Sleep(time.Duration(c.rng.ExpFloat64() * 2000))
	v := c.now(time.Now())
	time.Sleep(time.Duration(c.rng.ExpFloat64() * 2000))
	return v
}

func TestClockIsAsGoodAsItSays(t *testing.T) {
	for _, ppm := range []float64{0, 40, -93, 0.3} {
		synctest.Test(t, func(t *testing.T) {
			fpga := &counter{start: time.Now().Add(-time.Hour), ppm: ppm, rng: rand.New(rand.NewPCG(1, uint64(ppm+100)))}
			var c Clock
			if at, _ := c.At(5); !at.IsZero() {
				t.Error("a time before the first reading")
			}
			worst := time.Duration(0)
			for i := range 120 {
				if c.Update(fpga.read, false) {
					t.Errorf("%v ppm: step seen in second %d", ppm, i)
				}
				for range 10 {
					time.Sleep(pairEvery / 10)
					now := time.Now()
					got, uncertainty := c.At(fpga.now(now))
					if off := got.Sub(now).Abs(); off > uncertainty {
						t.Errorf("%v ppm, second %d: off by %v, and says %v", ppm, i, off, uncertainty)
					}
					if i > 40 {
						worst = max(worst, uncertainty)
					}
				}
			}
			if worst > 20*time.Microsecond {
				t.Errorf("%v ppm: uncertainty %v after 40 readings", ppm, worst)
			}
			if d := c.Drift(); math.Abs(d-ppm) > 1 {
				t.Errorf("drift %v ppm, want %v", d, ppm)
			}
		})
	}
}

func TestClockSurvivesSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fpga := &counter{start: time.Now().Add(-time.Hour), ppm: 50, rng: rand.New(rand.NewPCG(1, 1))}
		var c Clock
		for i := range 60 {
			stepped := c.Update(fpga.read, false)
			if want := i == 20 || i == 40; stepped != want {
				t.Errorf("second %d: step %t", i, stepped)
			}
			time.Sleep(pairEvery / 2)
			now := time.Now()
			if got, u := c.At(fpga.now(now)); got.Sub(now).Abs() > u {
				t.Errorf("second %d: off by %v, and says %v", i, got.Sub(now), u)
			}
			switch i {
			case 19:
				fpga.ahead += 3 * time.Second
			case 39:
				fpga.ahead -= 2 * time.Second
			}
			time.Sleep(pairEvery / 2)
		}
		if c.Steps() != 2 {
			t.Errorf("%d steps, want 2", c.Steps())
		}
	})
}

// TestAnAlteredCounterIsUncertain checks that the time of a counter whose rate the host has changed is as uncertain as
// that rate until it has been measured, so that it is not taken for a step.
func TestAnAlteredCounterIsUncertain(t *testing.T) {
	now := time.Now()
	c := &Clock{n: 1, pairs: [clockPairs]pair{{host: now, fpga: 0, half: time.Microsecond}}}
	c.measure()
	if _, unsure := c.At(1e9); unsure > 110*time.Microsecond {
		t.Errorf("an unaltered counter is uncertain by %v after a second", unsure)
	}
	c.alter(func() change { return change{rate: steering} })
	if _, unsure := c.At(1e9); unsure < time.Second/1000 {
		t.Errorf("an altered counter is uncertain by %v after a second", unsure)
	}
	c.add(pair{now.Add(time.Second), 1e9, time.Microsecond})
	c.add(pair{now.Add(2 * time.Second), 2e9, time.Microsecond})
	if _, unsure := c.At(3e9); unsure > 5*time.Microsecond {
		t.Errorf("a measured counter is uncertain by %v", unsure)
	}
}
