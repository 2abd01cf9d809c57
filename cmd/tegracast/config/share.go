// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// Share lets other processes of this machine map the frames.
type Share struct {
	readers.Share `yaml:",inline"`
}

func (c *Share) resolve(r *resolver, at yamlfile.Section, o *Output) error {
	c.SetDefaults()
	o.OpenAt, o.recorded, o.Holds = at.Place(), true, c.Holds()
	r.out.Source(o.Source).Shared = true
	if err := c.Check(at); err != nil {
		return err
	}
	if first, taken := r.taken.take("socket "+c.Socket, at.Key("socket")); taken {
		return at.Key("socket").Errorf("%s is %s already: give it another path", c.Socket, first)
	}
	return nil
}

func (c *Share) check(pipeline.Format) error { return nil }

func (c *Share) packets(f pipeline.Format) (pipeline.Format, bool) { return f, false }
