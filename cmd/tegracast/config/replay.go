// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"strings"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// Replay replays a file.
type Replay struct {
	Path   string  `yaml:"path" jsonschema:"minLength=1" jsonschema_description:"A .y4m file (limited range unless it says XCOLORRANGE=FULL), or a sensor's frames without header."`
	Width  int     `yaml:"width,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Width of a frame, in pixels, for files without header."`
	Height int     `yaml:"height,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Height of a frame, in lines, for files without header."`
	Sensor *Sensor `yaml:"sensor,omitempty" jsonschema_description:"How the samples lie in a file without header (default: RGGB of 10 bits)."`
	Rate   Rate    `yaml:"rate,omitempty" jsonschema_description:"Frames a second (default: the file's own rate, or 30)."`
	Once   bool    `yaml:"once,omitempty" jsonschema_description:"End after the last frame instead of starting again."`
}

// describesItself reports whether the file has a header, that is, whether its name ends in .y4m. Other files contain a
// sensor's frames without headers.
func (f *Replay) describesItself() bool { return strings.EqualFold(filepath.Ext(f.Path), ".y4m") }

func (f *Replay) resolve(_ *resolver, at yamlfile.Section, s *Source) error {
	s.OpenAt = at.Key("path").Place()
	s.NoExposure = "is a file"
	s.cpuReads = "the CPU itself reads the file into that memory: leave write_combined out"
	switch {
	case f.Path == "":
		return at.Key("path").Errorf("give the file to replay")
	case f.Rate.V.Num > capture.MaxReplayRate*f.Rate.V.Den:
		return at.Key("rate").Errorf("%s: must be at most %d, so that the frames' RTP timestamps differ", f.Rate.V, capture.MaxReplayRate)
	case f.describesItself() && (f.Width != 0 || f.Height != 0):
		return at.Errorf("a .y4m file contains its width and height: leave them out")
	case f.describesItself() && f.Sensor != nil:
		return at.Key("sensor").Errorf("a .y4m file holds pictures, not samples of a sensor: leave sensor out")
	case !f.describesItself() && (f.Width == 0 || f.Height == 0):
		return at.Errorf("a headerless file needs its width and height")
	}
	s.file = func() (pipeline.Format, error) { return capture.CheckReplay(f.Path, s.Format, f.Rate.V) }
	if err := f.Sensor.check(at.Key("sensor"), true); err != nil || f.describesItself() {
		return err
	}
	rate := f.Rate.V
	if rate.Num == 0 {
		rate = defaultRate
	}
	s.Format, s.FormatKnown = f.Sensor.format(f.Width, f.Height, rate), true
	return nil
}
