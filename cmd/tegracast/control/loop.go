// SPDX-License-Identifier: Apache-2.0

// Package control sets cameras and isps while they run: automatic loops, and what a person sets.
package control

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/loops"
	"github.com/tegracast/tegracast/cmd/tegracast/live"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
)

// A Camera says what of it can be set.
type Camera interface {
	auto.Camera
	Adjustable() (exposure, gain bool)
}

// A Loop is a control loop with the isp that it stands behind.
type Loop struct {
	*auto.Loop
	Name   string
	Stage  auto.Balancer // set before the loop runs
	config *loops.Auto
}

// NewLoop makes the loop of an isp, whose statistics it observes by cfg. It returns nil where the configuration has none.
func NewLoop(source pipeline.Source, c *config.ISP, cfg *isp.Config, log *slog.Logger) (*Loop, error) {
	if c.Auto == nil || c.Auto.Exposure == nil && c.Auto.WhiteBalance == nil {
		return nil, nil
	}
	loop := auto.LoopConfig{Gains: cfg.Gains, Logger: log.With("isp", c.Name)}
	if c.Auto.Exposure != nil {
		camera := source.(Camera) // the configuration was checked
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
	return &Loop{Loop: l, Name: c.Name, config: c.Auto}, nil
}

// exposureLimits keeps what the camera has fixed.
func exposureLimits(limits *auto.ExposureConfig, camera Camera) (*auto.ExposureConfig, error) {
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

// String is the loop's state as the status line has it.
func (l *Loop) String() string {
	s := l.State()
	parts := []string{l.Name}
	if l.config.Exposure != nil {
		text := fmt.Sprintf("exposure %s gain %.2f level %.3f", live.MS(s.Setting.Exposure), s.Setting.Gain, s.Level)
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
