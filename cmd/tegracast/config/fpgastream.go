// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// FPGAStream is an H2C stream to the FPGA.
type FPGAStream struct {
	Card    string `yaml:"card,omitempty" jsonschema_description:"Name of the source whose FPGA takes the frames (default: the source of the frames)."`
	Channel int    `yaml:"channel,omitempty" jsonschema:"minimum=0,maximum=3" jsonschema_description:"H2C channel (default 0)."`
}

// resolve finds the card that the frames go to. Two outputs must not use the same channel of a card.
func (c *FPGAStream) resolve(r *resolver, at yamlfile.Section, o *Output) (traits, error) {
	c.Card = cmp.Or(c.Card, o.Source)
	source := r.out.Source(c.Card)
	if source == nil || source.Card.Name == "" {
		return traits{}, at.Key("card").Errorf("%q is not a source with an FPGA", c.Card)
	}
	if s := r.out.Stage(o.From); s != nil && s.Passes {
		return traits{}, at.Errorf("the FPGA needs memory of its own, and %q passes on that of %q: read from %q", s.Name, s.From, s.From)
	}
	if first, taken := r.taken.take(fmt.Sprintf("fpga %s %d", source.Card.Name, c.Channel), at); taken {
		return traits{}, at.Errorf("channel %d of %q is used by %s already", c.Channel, c.Card, first)
	}
	return traits{Card: source.Card.Name, OpenAt: at.Key("channel").Place()}, nil
}
