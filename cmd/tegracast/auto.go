package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
)

// AutoConfig says what is controlled by the picture: what is not given is not.
type AutoConfig struct {
	Exposure     *AutoExposureConfig     `yaml:"exposure,omitempty" jsonschema_description:"Controls exposure and gain of the camera. {} takes the defaults."`
	WhiteBalance *AutoWhiteBalanceConfig `yaml:"white_balance,omitempty" jsonschema_description:"Controls the gains of the isp. {} takes the defaults."`
}

// AutoExposureConfig are the aim and the limits of automatic exposure.
type AutoExposureConfig struct {
	Target    float64             `yaml:"target,omitempty" jsonschema:"minimum=0.01,maximum=0.9" jsonschema_description:"The mean of green that the control aims at, as a share of white (default 0.18)."`
	Shortest  word[time.Duration] `yaml:"shortest,omitempty" jsonschema_description:"Shortest exposure (default 100us)."`
	Longest   word[time.Duration] `yaml:"longest,omitempty" jsonschema_description:"Longest exposure (default: the frame period)."`
	LeastGain float64             `yaml:"least_gain,omitempty" jsonschema:"minimum=0.00390625,maximum=256" jsonschema_description:"Smallest gain (default 1)."`
	MostGain  float64             `yaml:"most_gain,omitempty" jsonschema:"minimum=0.00390625,maximum=256" jsonschema_description:"Largest gain (default 8). Gain adds noise, so it is raised only when the exposure is at its limit."`
	Freeze    bool                `yaml:"freeze,omitempty" jsonschema_description:"Hold exposure and gain: those that the camera starts with, or, if a reload sets freeze, those reached by then."`
}

// AutoWhiteBalanceConfig are the limits of automatic white balance.
type AutoWhiteBalanceConfig struct {
	LeastRed  float64 `yaml:"least_red,omitempty" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Smallest gain of red (default 1)."`
	MostRed   float64 `yaml:"most_red,omitempty" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Largest gain of red (default 4)."`
	LeastBlue float64 `yaml:"least_blue,omitempty" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Smallest gain of blue (default 1)."`
	MostBlue  float64 `yaml:"most_blue,omitempty" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Largest gain of blue (default 4)."`
	Freeze    bool    `yaml:"freeze,omitempty" jsonschema_description:"Hold the gains: those of white_balance, or, if a reload sets freeze, those reached by then."`
}

// Limits of exposure and gain that nobody gave.
const (
	defaultShortest = 100 * time.Microsecond
	defaultMostGain = 8
)

func (c *AutoExposureConfig) config(period time.Duration) *auto.ExposureConfig {
	e := &auto.ExposureConfig{
		Target: c.Target,
		Min:    auto.Setting{Exposure: c.Shortest.V, Gain: cmp.Or(c.LeastGain, 1)},
		Max:    auto.Setting{Exposure: c.Longest.V, Gain: cmp.Or(c.MostGain, max(defaultMostGain, c.LeastGain))},
	}
	if e.Max.Exposure == 0 {
		e.Max.Exposure = period
	}
	if e.Min.Exposure == 0 {
		e.Min.Exposure = min(defaultShortest, e.Max.Exposure)
	}
	return e
}

func (c *AutoWhiteBalanceConfig) config() *auto.WhiteBalanceConfig {
	return &auto.WhiteBalanceConfig{Min: isp.Gains{R: c.LeastRed, B: c.LeastBlue}, Max: isp.Gains{R: c.MostRed, B: c.MostBlue}}
}

// frozen says what is held.
func (c *AutoConfig) frozen() (exposure, whiteBalance bool) {
	return c.Exposure != nil && c.Exposure.Freeze, c.WhiteBalance != nil && c.WhiteBalance.Freeze
}

// checkAuto refuses limits that cannot be, and what the source cannot follow.
func (d *document) checkAuto(path string, c *ISPConfig) error {
	if c.Auto == nil {
		return nil
	}
	path += ".auto"
	source := d.source(c.From)
	in, _ := source.format()
	if e := c.Auto.Exposure; e != nil {
		period := in.Rate.Period()
		switch {
		case source.File != nil:
			return d.errorAt(path+".exposure", "source %q is a file, which is exposed already: leave exposure out", c.From)
		case source.bare():
			return d.errorAt(path+".exposure", "source %q is a bare stream, whose exposure nobody can set: leave exposure out", c.From)
		case e.Longest.V > period:
			return d.errorAt(path+".exposure.longest", "%v: must be up to the frame period, %v", e.Longest.V, period)
		case e.Shortest.V < 0 || e.Longest.V < 0:
			return d.errorAt(path+".exposure", "exposures must be above 0")
		}
		for _, other := range d.ISP {
			if other.Name != c.Name && other.From == c.From && other.Auto != nil && other.Auto.Exposure != nil {
				return d.errorAt(path+".exposure", "isp %q controls the exposure of source %q already", other.Name, c.From)
			}
		}
		if err := e.config(period).Validate(); err != nil {
			return d.errorAt(path+".exposure", "%s", plain(err, auto.ErrConfig))
		}
	}
	if w := c.Auto.WhiteBalance; w != nil {
		if s, _ := in.Pixel.Samples(); s.Mosaic == pipeline.Mono {
			return d.errorAt(path+".white_balance", "source %q is monochrome: leave white_balance out", c.From)
		}
		if err := w.config().Validate(); err != nil {
			return d.errorAt(path+".white_balance", "%s", plain(err, auto.ErrConfig))
		}
	}
	return nil
}

// A controller is a loop with the isp that it stands behind.
type controller struct {
	*auto.Loop
	name   string
	stage  auto.Balancer
	config *AutoConfig
}

// adjustable is a camera that says what of it can be set.
type adjustable interface {
	auto.Camera
	Adjustable() (exposure, gain bool)
}

// addController makes the loop of an isp, whose statistics it observes.
func (f *flow) addController(e env, c *ISPConfig, cfg *isp.Config) (*controller, error) {
	if c.Auto == nil || c.Auto.Exposure == nil && c.Auto.WhiteBalance == nil {
		return nil, nil
	}
	loop := auto.LoopConfig{Gains: cfg.Gains, Logger: e.log.With("isp", c.Name)}
	if c.Auto.Exposure != nil {
		camera := f.source.(adjustable) // the configuration was checked
		limits, err := exposureLimits(c.Auto.Exposure.config(f.source.Format().Rate.Period()), camera)
		if err != nil {
			return nil, fmt.Errorf("isp %s: automatic exposure: %w", c.Name, err)
		}
		loop.Camera, loop.Exposure = camera, limits
	}
	if c.Auto.WhiteBalance != nil {
		loop.WhiteBalance = c.Auto.WhiteBalance.config()
	}
	l, err := auto.NewLoop(loop)
	if err != nil {
		return nil, fmt.Errorf("isp %s: auto: %w", c.Name, err)
	}
	l.Freeze(c.Auto.frozen())
	cfg.Observe = l.Observe
	f.controllers = append(f.controllers, &controller{Loop: l, name: c.Name, config: c.Auto})
	return f.controllers[len(f.controllers)-1], nil
}

// exposureLimits keeps what the camera has fixed.
func exposureLimits(limits *auto.ExposureConfig, camera adjustable) (*auto.ExposureConfig, error) {
	exposure, gain := camera.Adjustable()
	now, nowGain, err := camera.Exposure()
	switch {
	case err != nil:
		return nil, err
	case !exposure && !gain:
		return nil, fmt.Errorf("exposure and gain of this camera are fixed: leave auto.exposure out")
	case !exposure:
		limits.Min.Exposure, limits.Max.Exposure = now, now
	case !gain:
		limits.Min.Gain, limits.Max.Gain = nowGain, nowGain
	}
	return limits, nil
}

// freeze holds and releases what the document says of the isps in names, in loops that run.
func (a *appliance) freeze(d *document, names map[string]bool) {
	for _, c := range a.controllers() {
		if names[c.name] {
			c.Freeze(d.isp(c.name).Auto.frozen())
		}
	}
}

// control runs the loops until ctx ends, and returns when they have.
func (f *flow) control(ctx context.Context) (wait func()) {
	done := make(chan struct{}, len(f.controllers))
	for _, c := range f.controllers {
		go func() {
			c.Run(ctx, c.stage)
			done <- struct{}{}
		}()
	}
	return func() {
		for range f.controllers {
			<-done
		}
	}
}

// String is the loop's state as the status line has it.
func (c *controller) String() string {
	s := c.State()
	parts := []string{c.name}
	if c.config.Exposure != nil {
		text := fmt.Sprintf("exposure %s gain %.2f level %.3f", ms(s.Setting.Exposure), s.Setting.Gain, s.Level)
		text += [...]string{" (too bright for the limits)", "", " (too dark for the limits)"}[s.Limit+1]
		parts = append(parts, text+frozen(s.ExposureFrozen))
	}
	if c.config.WhiteBalance != nil {
		text := fmt.Sprintf("red %.3f blue %.3f", s.Gains.R, s.Gains.B)
		if s.GainsLimited && !s.GainsFrozen {
			text += " (at a limit)"
		}
		parts = append(parts, text+frozen(s.GainsFrozen))
	}
	return strings.Join(parts, " ")
}

func frozen(is bool) string {
	if is {
		return " (frozen)"
	}
	return ""
}
