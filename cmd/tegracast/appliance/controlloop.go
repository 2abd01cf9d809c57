// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
)

// A controlLoop is a control loop together with its isp.
type controlLoop struct {
	*auto.Loop
	Name   string
	Stage  auto.Balancer // the isp; set before Run
	config *config.Auto
}

// newControlLoop returns the loop of an isp and sets cfg to pass the isp's statistics to it. It returns nil if the
// configuration has no loop.
func newControlLoop(source pipeline.Source, c *config.ISP, cfg *isp.Config, log *slog.Logger) (*controlLoop, error) {
	if c.Auto == nil || c.Auto.Exposure == nil && c.Auto.WhiteBalance == nil {
		return nil, nil
	}
	loop := auto.LoopConfig{Gains: cfg.Gains, Logger: log.With("isp", c.Name)}
	if c.Auto.Exposure != nil {
		camera := source.(auto.Camera) // the configuration was checked
		limits, err := exposureLimits(c.Auto.Exposure.Config(source.Format().Rate.Period()), camera)
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
	return &controlLoop{Loop: l, Name: c.Name, config: c.Auto}, nil
}

// exposureLimits adapts limits to the camera and returns them: if the camera cannot change one of the two settings,
// both limits of that setting become its current value. It returns an error if the camera can change neither setting,
// or the settings cannot be read.
func exposureLimits(limits *auto.ExposureConfig, camera auto.Camera) (*auto.ExposureConfig, error) {
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

// String returns the loop's state for the status line.
func (l *controlLoop) String() string {
	s := l.State()
	parts := []string{l.Name}
	if l.config.Exposure != nil {
		text := fmt.Sprintf("exposure %s gain %.2f level %.3f", terminal.MS(s.Setting.Exposure), s.Setting.Gain, s.Level)
		text += [...]string{" (too bright for the limits)", "", " (too dark for the limits)"}[s.Limit+1]
		parts = append(parts, text+frozen(s.ExposureFrozen))
	}
	if l.config.WhiteBalance != nil {
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
