// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"fmt"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/loops"
	"github.com/tegracast/tegracast/cmd/tegracast/live"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
)

// A controller is a loop with the isp that it stands behind.
type controller struct {
	*auto.Loop
	name   string
	stage  auto.Balancer
	config *loops.Auto
}

// adjustable is a camera that says what of it can be set.
type adjustable interface {
	auto.Camera
	Adjustable() (exposure, gain bool)
}

// addController makes the loop of an isp, whose statistics it observes.
func (a *Appliance) addController(f *flow, c *config.ISP, cfg *isp.Config) (*controller, error) {
	if c.Auto == nil || c.Auto.Exposure == nil && c.Auto.WhiteBalance == nil {
		return nil, nil
	}
	loop := auto.LoopConfig{Gains: cfg.Gains, Logger: a.env.Log.With("isp", c.Name)}
	if c.Auto.Exposure != nil {
		camera := f.source.(adjustable) // the configuration was checked
		limits, err := exposureLimits(c.Auto.Exposure.Config(f.source.Format().Rate.Period()), camera)
		if err != nil {
			return nil, fmt.Errorf("automatic exposure: %w", err)
		}
		loop.Camera, loop.Exposure = camera, limits
	}
	if c.Auto.WhiteBalance != nil {
		loop.WhiteBalance = c.Auto.WhiteBalance.Config()
	}
	l, err := auto.NewLoop(loop)
	if err != nil {
		return nil, fmt.Errorf("auto: %w", err)
	}
	l.Freeze(c.Auto.Frozen())
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

// freeze holds and releases what the configuration says of the isps in names, in loops that run.
func (a *Appliance) freeze(c *config.Appliance, names map[string]bool) {
	for _, x := range a.controllers() {
		if !names[x.name] {
			continue
		}
		if k, ok := c.Stage(x.name).Kind.(*config.ISP); ok {
			x.Freeze(k.Auto.Frozen())
		}
	}
}

// controllers are the loops that run.
func (a *Appliance) controllers() []*controller {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*controller
	for _, f := range a.flows {
		list = append(list, f.controllers...)
	}
	return list
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
		text := fmt.Sprintf("exposure %s gain %.2f level %.3f", live.MS(s.Setting.Exposure), s.Setting.Gain, s.Level)
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
