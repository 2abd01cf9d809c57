// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/tegra"
)

// FPGA is a camera, or a bare stream, of an FPGA that the kernel module tegra_p2p drives.
type FPGA struct {
	Device    string   `yaml:"device" jsonschema:"pattern=^/" jsonschema_description:"Device file of the kernel module, such as /dev/tegra_p2p0. Several cameras may share one."`
	Stream    string   `yaml:"stream,omitempty" jsonschema:"enum=camera,enum=bare" jsonschema_description:"camera (default): the FPGA has a camera block and appends a trailer to each frame. bare: packets of a frame's pixels and nothing else (docs/fpga-interface.md)."`
	Camera    int      `yaml:"camera,omitempty" jsonschema:"minimum=0,maximum=15" jsonschema_description:"Number of the camera on the FPGA (default 0)."`
	Channel   int      `yaml:"channel,omitempty" jsonschema:"minimum=0,maximum=3" jsonschema_description:"C2H channel of a bare stream (default 0)."`
	Width     int      `yaml:"width" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Width of a frame, in pixels."`
	Height    int      `yaml:"height" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Height of a frame, in lines."`
	Sensor    *Sensor  `yaml:"sensor,omitempty" jsonschema_description:"How the samples lie in memory (default: RGGB of 10 bits)."`
	Rate      Rate     `yaml:"rate,omitempty" jsonschema_description:"Frames a second, such as 30 or 30000/1001 (default 30)."`
	Exposure  Duration `yaml:"exposure,omitempty" jsonschema_description:"Exposure time, such as 8ms (default: what the sensor is set to)."`
	Gain      float64  `yaml:"gain,omitempty" jsonschema:"minimum=0.00390625,maximum=256" jsonschema_description:"Gain of the sensor (default: what the sensor is set to)."`
	Poll      bool     `yaml:"poll,omitempty" jsonschema_description:"Look for completions in memory instead of waiting for interrupts (default false). All sources of a device must agree."`
	Timeout   Duration `yaml:"frame_timeout,omitempty" jsonschema_description:"Maximum time without a frame, while there is memory for one, before the DMA engine is restarted (default 1s; four frame periods at least)."`
	Triggered bool     `yaml:"triggered,omitempty" jsonschema_description:"Take a frame at each trigger instead of rate frames a second. rate then says how often triggers come."`
}

func (c *FPGA) resolve(r *resolver, at yamlfile.Section, s *Source) error {
	if c.Rate.V.Num == 0 {
		c.Rate.V = defaultRate
	}
	switch {
	case !filepath.IsAbs(c.Device):
		return at.Key("device").Errorf("%q: name a device file such as %s", c.Device, tegra.DefaultDevice)
	case c.Exposure.V < 0 || c.Exposure.V > c.Rate.V.Period():
		return at.Key("exposure").Errorf("%v: must be from 0 to the frame period, %v", c.Exposure.V, c.Rate.V.Period())
	case c.Timeout.V < 0:
		return at.Key("frame_timeout").Errorf("%v: must be positive, such as 1s", c.Timeout.V)
	}
	if err := c.checkStream(at); err != nil {
		return err
	}
	if err := c.Sensor.check(at.Key("sensor"), false); err != nil {
		return err
	}
	s.Format, s.FormatKnown = c.Sensor.format(c.Width, c.Height, c.Rate.V), true
	s.Card = Card{Name: filepath.Clean(c.Device), Poll: c.Poll}
	s.Triggered = c.Triggered
	return cmp.Or(s.streamed(at, c.Stream == bareStream), c.checkShared(at, s, r.out.Sources))
}

// checkStream refuses keys that belong to the other kind of stream.
func (c *FPGA) checkStream(at yamlfile.Section) error {
	if c.Stream != bareStream {
		if c.Channel != 0 {
			return at.Key("channel").Errorf("the camera's registers name its channel: leave channel out, or write stream: bare")
		}
		return nil
	}
	for key, given := range map[string]bool{"camera": c.Camera != 0, "exposure": c.Exposure.V != 0, "gain": c.Gain != 0, "triggered": c.Triggered} {
		if given {
			return at.Key(key).Errorf("a bare stream has no camera block to set it: leave %s out", key)
		}
	}
	return nil
}

// origin names the part of the card that only one source may use: a camera, or the channel of a bare stream.
func (c *FPGA) origin() string {
	if c.Stream == bareStream {
		return fmt.Sprintf("channel %d", c.Channel)
	}
	return fmt.Sprintf("camera %d", c.Camera)
}

// checkShared refuses two sources of one camera or of one bare channel, and a card that only some of its sources poll.
func (c *FPGA) checkShared(at yamlfile.Section, s *Source, others []Source) error {
	for i := range others {
		other := &others[i]
		o, ok := other.Kind.(*FPGA)
		switch {
		case !ok || other.Card.Name != s.Card.Name:
		case o.Poll != c.Poll:
			return at.Key("poll").Errorf("%t, but source %q of the same device has %t: give poll the same value in both",
				c.Poll, other.Name, o.Poll)
		case o.origin() == c.origin():
			return at.Errorf("%s of %s is already source %q: name that one in from", c.origin(), s.Card.Name, other.Name)
		}
	}
	return nil
}
