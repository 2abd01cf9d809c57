// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
)

// Auto selects the loops that control exposure and white balance by the pictures. An omitted loop does not run.
type Auto struct {
	Exposure     *AutoExposure     `yaml:"exposure,omitempty" jsonschema_description:"Controls exposure and gain of the camera. {} takes the defaults."`
	WhiteBalance *AutoWhiteBalance `yaml:"white_balance,omitempty" jsonschema_description:"Controls the gains of the isp. {} takes the defaults."`
}

// AutoExposure holds the target and the limits of automatic exposure.
type AutoExposure struct {
	Target      float64                      `yaml:"target,omitempty" jsonschema:"minimum=0.01,maximum=0.9" jsonschema_description:"The mean of green that the control aims at, as a share of white (default 0.18)."`
	MinExposure yamlfile.Word[time.Duration] `yaml:"min_exposure,omitempty" was:"shortest" jsonschema_description:"Shortest exposure (default 100us)."`
	MaxExposure yamlfile.Word[time.Duration] `yaml:"max_exposure,omitempty" was:"longest" jsonschema_description:"Longest exposure (default: the frame period)."`
	MinGain     float64                      `yaml:"min_gain,omitempty" was:"least_gain" jsonschema:"minimum=0.00390625,maximum=256" jsonschema_description:"Smallest gain (default 1)."`
	MaxGain     float64                      `yaml:"max_gain,omitempty" was:"most_gain" jsonschema:"minimum=0.00390625,maximum=256" jsonschema_description:"Largest gain (default 8). Gain adds noise, so it is raised only when the exposure is at its limit."`
	Freeze      bool                         `yaml:"freeze,omitempty" jsonschema_description:"Hold exposure and gain: those that the camera starts with, or, if a reload sets freeze, those reached by then."`
}

// AutoWhiteBalance holds the limits of automatic white balance.
type AutoWhiteBalance struct {
	MinRed  float64 `yaml:"min_red,omitempty" was:"least_red" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Smallest gain of red (default 1)."`
	MaxRed  float64 `yaml:"max_red,omitempty" was:"most_red" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Largest gain of red (default 4)."`
	MinBlue float64 `yaml:"min_blue,omitempty" was:"least_blue" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Smallest gain of blue (default 1)."`
	MaxBlue float64 `yaml:"max_blue,omitempty" was:"most_blue" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Largest gain of blue (default 4)."`
	Freeze  bool    `yaml:"freeze,omitempty" jsonschema_description:"Hold the gains: those of white_balance, or, if a reload sets freeze, those reached by then."`
}

// Default limits of exposure and gain.
const (
	defaultMinExposure = 100 * time.Microsecond
	defaultMaxGain     = 8
)

// Config returns the target and the limits of the loop. The maximum exposure defaults to period, the frame period.
func (c *AutoExposure) Config(period time.Duration) *auto.ExposureConfig {
	e := &auto.ExposureConfig{
		Target: c.Target,
		Min:    auto.Setting{Exposure: c.MinExposure.V, Gain: cmp.Or(c.MinGain, 1)},
		Max:    auto.Setting{Exposure: c.MaxExposure.V, Gain: cmp.Or(c.MaxGain, max(defaultMaxGain, c.MinGain))},
	}
	if e.Max.Exposure == 0 {
		e.Max.Exposure = period
	}
	if e.Min.Exposure == 0 {
		e.Min.Exposure = min(defaultMinExposure, e.Max.Exposure)
	}
	return e
}

// Config returns the limits of the loop.
func (c *AutoWhiteBalance) Config() *auto.WhiteBalanceConfig {
	return &auto.WhiteBalanceConfig{Min: isp.Gains{R: c.MinRed, B: c.MinBlue}, Max: isp.Gains{R: c.MaxRed, B: c.MaxBlue}}
}

// Frozen reports which loops are frozen.
func (c *Auto) Frozen() (exposure, whiteBalance bool) {
	return c.Exposure != nil && c.Exposure.Freeze, c.WhiteBalance != nil && c.WhiteBalance.Freeze
}

// Released returns a copy of the section with no loop frozen.
func (c *Auto) Released() *Auto {
	next := *c
	if c.Exposure != nil {
		e := *c.Exposure
		e.Freeze, next.Exposure = false, &e
	}
	if c.WhiteBalance != nil {
		w := *c.WhiteBalance
		w.Freeze, next.WhiteBalance = false, &w
	}
	return &next
}
