// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/results"
)

// Results sends results as JSON.
type Results struct {
	UDP []string `yaml:"udp,omitempty" jsonschema_description:"Each is host:port and gets one datagram for each frame."`
	TCP string   `yaml:"tcp,omitempty" jsonschema_description:"host:port to listen on. Each connection gets every line from then on."`
	Bus bool     `yaml:"bus,omitempty" jsonschema_description:"Each frame's results are published on the bus (the section bus)."`
}

func (c *Results) resolve(r *resolver, at yamlfile.Section, _ *Output) (traits, error) {
	return traits{results: true}, c.verify(r, at)
}

// verify refuses invalid values.
func (c *Results) verify(r *resolver, at yamlfile.Section) error {
	switch {
	case len(c.UDP) == 0 && c.TCP == "" && !c.Bus:
		return at.Errorf("give the destination of the results: udp, tcp or bus")
	case c.Bus && r.file.Bus == nil:
		return at.Key("bus").Errorf("which one? Write the section bus, too: bus: {server: nats://HOST:4222}")
	}
	var errs []error
	for i, dest := range c.UDP {
		at := at.Key("udp").Element(i)
		if err := results.CheckAddress(dest); err != nil {
			errs = append(errs, at.Errorf("%w", err))
		} else if first, taken := r.taken.take(dest, at); taken {
			errs = append(errs, at.Errorf("%s is the destination of %s already: give it another port", dest, first))
		}
	}
	if err := yamlfile.Join(errs...); err != nil || c.TCP == "" {
		return err
	}
	at = at.Key("tcp")
	if err := results.CheckAddress(c.TCP); err != nil {
		return at.Errorf("%w", err)
	}
	if first, taken := r.taken.take("tcp "+c.TCP, at); taken {
		return at.Errorf("%s listens at %s already: give it another port", first, c.TCP)
	}
	return nil
}
