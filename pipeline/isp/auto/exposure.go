// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tegracast/tegracast/pipeline/isp"
)

// ErrConfig is wrapped by every error about an impossible configuration.
var ErrConfig = errors.New("auto: impossible configuration")

// A Setting is a setting of the sensor.
type Setting struct {
	Exposure time.Duration
	Gain     float64 // analogue; 1 means no gain
}

// light returns the factor by which the setting multiplies the scene's light.
func (s Setting) light() float64 { return s.Exposure.Seconds() * s.Gain }

// ExposureConfig configures automatic exposure.
type ExposureConfig struct {
	Target   float64 // wanted mean of green after black level and lens shading, as a part of white; 0 means 0.18, as of a grey card
	Min, Max Setting // limits of exposure and gain
}

// Assumptions and behaviour of the controller.
const (
	gainStep        = 1.0 / 256 // gains are multiples of it, as in the register
	exposureDamping = 0.4       // part of an error, on a logarithmic scale, that remains after a step
	tolerance       = 0.04      // errors up to this share are ignored
	delay           = 2         // frames from the one whose statistics led to a setting to the first one exposed with it
)

// historyLength is the maximum number of settings that may be on their way to the sensor.
const historyLength = 16

// Validate returns nil, or an error that wraps ErrConfig and states the value and the violated rule.
func (c ExposureConfig) Validate() error { return c.complete() }

func (c *ExposureConfig) complete() error {
	c.Target = cmp.Or(c.Target, 0.18)
	bad := func(format string, a ...any) error { return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...)) }
	switch {
	case !(c.Target > 0 && c.Target < 1):
		return bad("target %v: must be above 0 and below 1", c.Target)
	case c.Min.Exposure <= 0 || c.Max.Exposure < c.Min.Exposure:
		return bad("exposure from %v to %v", c.Min.Exposure, c.Max.Exposure)
	case !(c.Min.Gain > 0 && c.Max.Gain >= c.Min.Gain) || math.IsInf(c.Max.Gain, 1):
		return bad("gain from %v to %v", c.Min.Gain, c.Max.Gain)
	case math.Ceil(c.Min.Gain/gainStep) > math.Floor(c.Max.Gain/gainStep):
		return bad("no multiple of the gain step %v from %v to %v", gainStep, c.Min.Gain, c.Max.Gain)
	}
	return nil
}

// An Exposure is the controller of exposure and gain. It knows the setting with which each frame was exposed, so it is
// not misled by frames that are still in transit when a new setting takes effect, and cannot oscillate.
type Exposure struct {
	config  ExposureConfig
	history [historyLength]change // newest last
	frozen  bool
	limit   int
}

// A change records the frame from which a setting applies.
type change struct {
	from    uint64
	setting Setting
}

// NewExposure returns a controller that starts with the current setting of the sensor. The error wraps ErrConfig.
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

// Holds records from which frame on the setting last returned by Step applies, for a sensor that reports this. Without
// a call, it is assumed to apply from two frames after the frame that led to it.
func (e *Exposure) Holds(from uint64) { e.history[historyLength-1].from = from }

// Refused records that the sensor did not accept the setting last returned by Step.
func (e *Exposure) Refused() { copy(e.history[1:], e.history[:]) }

// Limit returns -1 if the scene was too bright for the limits, 1 if it was too dark, and otherwise 0. It refers to the
// last Step that was not frozen and had samples.
func (e *Exposure) Limit() int { return e.limit }

// Freeze makes Step keep the setting if frozen is true, or change it again if not.
func (e *Exposure) Freeze(frozen bool) { e.frozen = frozen }

// Step processes a frame's statistics and returns the setting that the sensor should have, and whether it has changed.
// green is the gain by which the isp multiplies green. Frames may be missing, but must not be repeated or out of order.
func (e *Exposure) Step(s *isp.Statistics, green float64) (Setting, bool) {
	last := e.last()
	level := green * Level(s)
	if e.frozen || level < 0 {
		return last, false
	}
	// The light that the scene would need, computed from the setting that the frame had.
	level = max(level, 1.0/4096)
	ideal := e.at(s.Sequence).light() * e.config.Target / level
	e.limit = 0
	if slack := 1 + tolerance; ideal > e.config.Max.light()*slack {
		e.limit = 1
	} else if ideal*slack < e.config.Min.light() {
		e.limit = -1
	}
	if r := ideal / last.light(); r < 1+tolerance && r > 1-tolerance {
		return last, false
	}
	wanted := e.split(last.light() * math.Pow(ideal/last.light(), 1-exposureDamping))
	if wanted == last {
		return last, false
	}
	e.note(s.Sequence+delay, wanted)
	return wanted, true
}

// note records that a setting applies from a given frame on.
func (e *Exposure) note(from uint64, s Setting) {
	copy(e.history[:], e.history[1:])
	e.history[historyLength-1] = change{from, s}
}

// last returns the setting last sent to the sensor.
func (e *Exposure) last() Setting { return e.history[historyLength-1].setting }

// at returns the setting with which a frame was exposed, or the oldest known one if the frame is older than that.
func (e *Exposure) at(sequence uint64) Setting {
	s := e.history[0].setting
	for _, c := range e.history {
		if c.from <= sequence {
			s = c.setting
		}
	}
	return s
}

// split returns the setting that corresponds to an amount of light. It achieves as much of that as possible by
// exposure, which adds no noise.
func (e *Exposure) split(light float64) Setting {
	c := e.config
	clamp := func(v, lo, hi float64) float64 { return min(max(v, lo), hi) }
	lowest := math.Ceil(c.Min.Gain/gainStep) * gainStep
	seconds := clamp(light/lowest, c.Min.Exposure.Seconds(), c.Max.Exposure.Seconds())
	gain := clamp(math.Round(light/seconds/gainStep)*gainStep, lowest, math.Floor(c.Max.Gain/gainStep)*gainStep)
	// The exposure compensates for the rounding of the gain, where it can.
	seconds = clamp(light/gain, c.Min.Exposure.Seconds(), c.Max.Exposure.Seconds())
	return Setting{Exposure: time.Duration(math.Round(seconds * 1e9)), Gain: gain}
}

// Level returns the mean of green from 0 to 1, in which clipped samples count as white, or -1 without samples.
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
