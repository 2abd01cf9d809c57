// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// UCX is a stream that servers take by UCX.
type UCX struct {
	Listen    string `yaml:"listen" jsonschema:"minLength=1" jsonschema_description:"IP address and port to listen at, such as 0.0.0.0:5020. Outputs may share it; receivers name the output that they want."`
	Receivers int    `yaml:"receivers,omitempty" jsonschema:"minimum=1,maximum=16" jsonschema_description:"How many may take this output at the same time (default 4). There is memory for two frames of each; who is there may use that of those who are not."`
	Checksum  *bool  `yaml:"checksum,omitempty" jsonschema_description:"Send the CRC-32C of each frame (default true). Frames as the FPGA's camera delivers them have the FPGA's own in any case."`
}

// defaultReceivers is how many may take an output that does not say.
const defaultReceivers = 4

func (c *UCX) resolve(r *resolver, at yamlfile.Section, o *Output) error {
	c.Receivers = cmp.Or(c.Receivers, defaultReceivers)
	if c.Checksum == nil {
		on := true
		c.Checksum = &on
	}
	o.OpenAt, o.recorded, o.Holds = at.Place(), true, frames.Holds(c.Receivers)
	at = at.Key("listen")
	if err := frames.CheckAddress(c.Listen); err != nil {
		return at.Errorf("%w", err)
	}
	if slices.ContainsFunc(r.out.Outputs, func(x Output) bool { other, is := x.Kind.(*UCX); return is && other.Listen == c.Listen }) {
		return nil
	}
	if first, taken := r.taken.take("tcp "+c.Listen, at); taken {
		return at.Errorf("%s listens at %s already: give it another port", first, c.Listen)
	}
	return nil
}

func (c *UCX) check(pipeline.Format) error { return nil }

func (c *UCX) packets(f pipeline.Format) (pipeline.Format, bool) { return f, false }
