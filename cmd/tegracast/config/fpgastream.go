// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// FPGAStream is an H2C stream to the FPGA.
type FPGAStream struct {
	Card    string `yaml:"card,omitempty" jsonschema_description:"Name of the source whose FPGA takes the frames (default: the source of the frames)."`
	Channel int    `yaml:"channel,omitempty" jsonschema:"minimum=0,maximum=3" jsonschema_description:"H2C channel (default 0)."`
}

// resolve settles which card the frames go to. No two outputs may use one of its channels.
func (c *FPGAStream) resolve(r *resolver, at yamlfile.Section, o *Output) error {
	c.Card = cmp.Or(c.Card, o.Source)
	source := r.out.Source(c.Card)
	if source == nil || source.Card.Name == "" {
		return at.Key("card").Errorf("%q is not a source with an FPGA", c.Card)
	}
	o.Card, o.OpenAt = source.Card.Name, at.Key("channel").Place()
	if first, taken := r.taken.take(fmt.Sprintf("fpga %s %d", o.Card, c.Channel), at); taken {
		return at.Errorf("channel %d of %q is used by %s already", c.Channel, c.Card, first)
	}
	return nil
}

func (c *FPGAStream) check(pipeline.Format) error { return nil }

func (c *FPGAStream) packets(f pipeline.Format) (pipeline.Format, bool) { return f, false }
