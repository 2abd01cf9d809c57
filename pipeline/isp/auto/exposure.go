// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tegracast/tegracast/pipeline/isp"
)

// ErrConfig is wrapped by every error that says why a configuration cannot be.
var ErrConfig = errors.New("auto: impossible configuration")

// A Setting is what the sensor is told.
type Setting struct {
	Exposure time.Duration
	Gain     float64 // analogue, 1 is none
}

// light is what the setting makes of the scene's: their product.
func (s Setting) light() float64 { return s.Exposure.Seconds() * s.Gain }

// ExposureConfig are the limits and the manners of automatic exposure.
type ExposureConfig struct {
	Target    float64 // wanted mean of green behind black level and lens shading, 0 to 1 of white; 0 is 0.18, a grey card's
	Min, Max  Setting // limits of both
	GainStep  float64 // gains are multiples of it, as the register has them; 0 is 1/256
	Damping   float64 // 0 to below 1: the share of an error that is left after a step, by its logarithm; 0 is 0.4
	Tolerance float64 // errors up to this share change nothing; 0 is 0.04
	Delay     int     // frames between that whose statistics led to a setting and the first that is exposed with it; 1 is the next one, 0 is 2
}

// historyLength is how many settings may be on their way to the sensor.
const historyLength = 16

// Validate returns an error that wraps ErrConfig and names the value and the rule.
func (c ExposureConfig) Validate() error { return c.complete() }

func (c *ExposureConfig) complete() error {
	orDefault := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	orDefault(&c.Target, 0.18)
	orDefault(&c.GainStep, 1.0/256)
	orDefault(&c.Damping, 0.4)
	orDefault(&c.Tolerance, 0.04)
	if c.Delay == 0 {
		c.Delay = 2
	}
	bad := func(format string, a ...any) error { return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...)) }
	switch {
	case !(c.Target > 0 && c.Target < 1):
		return bad("target %v: must be above 0 and below 1", c.Target)
	case !(c.Damping >= 0 && c.Damping < 1):
		return bad("damping %v: must be from 0 to below 1", c.Damping)
	case !(c.Tolerance >= 0 && c.Tolerance < 1):
		return bad("tolerance %v: must be from 0 to below 1", c.Tolerance)
	case c.Delay < 1 || c.Delay >= historyLength:
		return bad("delay of %d frames: must be from 1 to %d", c.Delay, historyLength-1)
	case c.Min.Exposure <= 0 || c.Max.Exposure < c.Min.Exposure:
		return bad("exposure from %v to %v", c.Min.Exposure, c.Max.Exposure)
	case !(c.Min.Gain > 0 && c.Max.Gain >= c.Min.Gain) || math.IsInf(c.Max.Gain, 1):
		return bad("gain from %v to %v", c.Min.Gain, c.Max.Gain)
	case !(c.GainStep > 0 && math.Ceil(c.Min.Gain/c.GainStep) <= math.Floor(c.Max.Gain/c.GainStep)):
		return bad("no multiple of the gain step %v from %v to %v", c.GainStep, c.Min.Gain, c.Max.Gain)
	}
	return nil
}

// An Exposure is the controller. It knows which setting a frame was exposed with, so the frames that are on their way
// while a new setting takes effect do not mislead it: there is nothing that could oscillate.
type Exposure struct {
	config  ExposureConfig
	history [historyLength]change // the newest last
	frozen  bool
	limit   int
}

// A change says from which frame on a setting holds.
type change struct {
	from    uint64
	setting Setting
}

// NewExposure begins with the setting that the sensor has now.
func NewExposure(c ExposureConfig, now Setting) (*Exposure, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if !(now.light() > 0) || math.IsInf(now.light(), 1) {
		return nil, fmt.Errorf("%w: exposure %v with gain %v to begin with", ErrConfig, now.Exposure, now.Gain)
	}
	e := &Exposure{config: c}
	for i := range e.history {
		e.history[i].setting = now
	}
	return e, nil
}

// Holds says that the setting that Step returned last holds from that frame on, where the sensor can tell. Otherwise it
// is taken to hold from ExposureConfig.Delay frames after the one that led to it.
func (e *Exposure) Holds(from uint64) { e.history[historyLength-1].from = from }

// Refused says that the sensor did not take the setting that Step returned last.
func (e *Exposure) Refused() { copy(e.history[1:], e.history[:]) }

// Limit says whether the scene is too bright for the limits (-1), too dark (1) or neither, as of the last Step.
func (e *Exposure) Limit() int { return e.limit }

// Freeze holds the setting until it is called with false.
func (e *Exposure) Freeze(frozen bool) { e.frozen = frozen }

// Step takes a frame's statistics and returns the setting that the sensor shall have, and whether it is another than
// before. Frames may be missing, but none may come twice or late.
func (e *Exposure) Step(s *isp.Statistics) (Setting, bool) {
	last := e.last()
	level := Level(s)
	if e.frozen || level < 0 {
		return last, false
	}
	// What light the scene would need, from the setting that the frame had.
	level = max(level, 1.0/4096)
	ideal := e.at(s.Sequence).light() * e.config.Target / level
	e.limit = 0
	if slack := 1 + e.config.Tolerance; ideal > e.config.Max.light()*slack {
		e.limit = 1
	} else if ideal*slack < e.config.Min.light() {
		e.limit = -1
	}
	if r := ideal / last.light(); r < 1+e.config.Tolerance && r > 1-e.config.Tolerance {
		return last, false
	}
	wanted := e.split(last.light() * math.Pow(ideal/last.light(), 1-e.config.Damping))
	if wanted == last {
		return last, false
	}
	e.note(s.Sequence+uint64(e.config.Delay), wanted)
	return wanted, true
}

// note says that a setting holds from that frame on.
func (e *Exposure) note(from uint64, s Setting) {
	copy(e.history[:], e.history[1:])
	e.history[historyLength-1] = change{from, s}
}

// last is the setting that the sensor was told last.
func (e *Exposure) last() Setting { return e.history[historyLength-1].setting }

// at is the setting that a frame was exposed with.
func (e *Exposure) at(sequence uint64) Setting {
	s := e.history[0].setting
	for _, c := range e.history {
		if c.from <= sequence {
			s = c.setting
		}
	}
	return s
}

// split makes as much as possible of the light by exposure, which adds no noise.
func (e *Exposure) split(light float64) Setting {
	c := e.config
	clamp := func(v, lo, hi float64) float64 { return min(max(v, lo), hi) }
	lowest := math.Ceil(c.Min.Gain/c.GainStep) * c.GainStep
	seconds := clamp(light/lowest, c.Min.Exposure.Seconds(), c.Max.Exposure.Seconds())
	gain := clamp(math.Round(light/seconds/c.GainStep)*c.GainStep, lowest, math.Floor(c.Max.Gain/c.GainStep)*c.GainStep)
	// The exposure makes good what the gain's step leaves, where it can.
	seconds = clamp(light/gain, c.Min.Exposure.Seconds(), c.Max.Exposure.Seconds())
	return Setting{Exposure: time.Duration(math.Round(seconds * 1e9)), Gain: gain}
}

// Level is the mean of green from 0 to 1, clipped samples as white; -1 without samples.
func Level(s *isp.Statistics) float64 {
	const green = 1
	var sum float64
	for y := range s.Zones {
		for x := range s.Zones[y] {
			sum += float64(s.Zones[y][x].Sum[green])
		}
	}
	if s.Samples[green] == 0 {
		return -1
	}
	return (sum/65535 + float64(s.Clipped[green])) / float64(s.Samples[green])
}
