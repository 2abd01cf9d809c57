// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/record"
)

// Recording plays recordings.
type Recording struct {
	Files   []string                       `yaml:"files" jsonschema:"minItems=1" jsonschema_description:"Recordings (outputs with record) in the order in which they are played: paths, or patterns such as /var/lib/tegracast/front-*.mcap, whose files are played in the order of their names."`
	From    yamlfile.Word[record.Position] `yaml:"from,omitempty" jsonschema_description:"Where to begin: the number of a frame, such as 1200, \"+40\" (in quotes) for 40 frames after the first one, a time since the first frame, such as 1m30s, or a time, such as 2026-11-24T06:33:02.5Z (default: the first frame)."`
	To      yamlfile.Word[record.Position] `yaml:"to,omitempty" jsonschema_description:"Where to end, before that frame or time (default: after the last frame)."`
	Pace    string                         `yaml:"pace,omitempty" jsonschema:"enum=recorded,enum=outputs" jsonschema_description:"recorded (default): at the pace of the frames' times. outputs: as fast as the outputs take the frames, of which none is dropped."`
	Repeat  bool                           `yaml:"repeat,omitempty" jsonschema_description:"Begin again after the last frame; numbers and times of the frames go on."`
	Storage string                         `yaml:"storage,omitempty" jsonschema:"enum=auto,enum=compatibility,enum=library" jsonschema_description:"Who reads the files: auto (default), compatibility or library, as for outputs with record."`

	paths []string
}

// Paths returns the files that Files names or matches, in the order in which they are played.
func (c *Recording) Paths() []string { return c.paths }

// Unpaced reports whether the outputs set the pace.
func (c *Recording) Unpaced() bool { return c.Pace == "outputs" }

func (c *Recording) resolve(_ *resolver, at yamlfile.Section, s *Source) error {
	s.OpenAt = at.Key("files").Place()
	s.NoExposure = "is a recording"
	s.cpuReads = "the CPU checks each frame that was recorded: leave write_combined out"
	var err error
	if c.paths, err = record.Expand(c.Files); err != nil {
		return s.OpenAt.Errorf("%w", err)
	}
	p, err := record.NewPlayer(context.Background(), c.paths, c.From.V, c.To.V, nil)
	if err != nil {
		return s.OpenAt.Errorf("%w", err)
	}
	if _, sensor := p.Format.Pixel.Samples(); sensor {
		s.Format, s.FormatKnown = p.Format, true
	}
	return nil
}
