// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
)

// checkAuto refuses invalid limits, loops that the source does not support, and an exposure loop if another isp already
// has one for the source. own is the isp's name. A nil section is valid.
func checkAuto(c *Auto, r *resolver, at yamlfile.Section, own string, source *Source) error {
	if c == nil {
		return nil
	}
	if err := checkExposure(c.Exposure, r, at.Key("exposure"), own, source); err != nil || c.WhiteBalance == nil {
		return err
	}
	at = at.Key("white_balance")
	if s, _ := source.Format.Pixel.Samples(); s.Mosaic == pipeline.Mono {
		return at.Errorf("source %q is monochrome: leave white_balance out", source.Name)
	}
	if err := c.WhiteBalance.Config().Validate(); err != nil {
		return at.Errorf("%s", plain(err, auto.ErrConfig))
	}
	return nil
}

func checkExposure(e *AutoExposure, r *resolver, at yamlfile.Section, own string, source *Source) error {
	if e == nil {
		return nil
	}
	period := source.Format.Rate.Period()
	switch {
	case source.NoExposure != "":
		return at.Errorf("source %q %s, whose exposure cannot be set: leave exposure out", source.Name, source.NoExposure)
	case e.MaxExposure.V > period:
		return at.Key("max_exposure").Errorf("%v: must be up to the frame period, %v", e.MaxExposure.V, period)
	case e.MinExposure.V < 0 || e.MaxExposure.V < 0:
		return at.Errorf("exposures must be above 0")
	}
	for _, other := range r.file.ISP {
		if other.Name != own && other.From == source.Name && other.Auto != nil && other.Auto.Exposure != nil {
			return at.Errorf("isp %q controls the exposure of source %q already", other.Name, source.Name)
		}
	}
	if err := e.Config(period).Validate(); err != nil {
		return at.Errorf("%s", plain(err, auto.ErrConfig))
	}
	return nil
}
