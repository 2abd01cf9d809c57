// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/group"
)

// Group is a group of sources whose frames of one moment get one number.
type Group struct {
	Name      string   `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the group."`
	Sources   []string `yaml:"sources" jsonschema:"minItems=1,maxItems=16" jsonschema_description:"Names of its members: cameras whose frames carry their exposure times."`
	Rate      Rate     `yaml:"rate,omitempty" jsonschema_description:"Groups a second, such as 30 or 30000/1001: at the multiples of its period since 1970, so that those of a whole number are aligned to the second. Programs and machines with the same rate give the same numbers. Default: the first exposure opens a group, in this program only."`
	Delay     Duration `yaml:"delay,omitempty" jsonschema_description:"Time from such an instant to the start of the exposure, less than its period (default 0s). Only with rate."`
	Tolerance Duration `yaml:"tolerance,omitempty" jsonschema_description:"How far the start of an exposure may be off: less than half of the period (default 1ms, or a quarter of the period)."`
	Trigger   bool     `yaml:"trigger,omitempty" jsonschema_description:"The program triggers the sources at these instants, by registers of their FPGAs. They must be triggered. Only with rate."`
}

// groups resolves the groups.
func (r *resolver) groups(root yamlfile.Section) error {
	var errs []error
	names, members := register{}, map[string]string{}
	for i, c := range r.file.Groups {
		at := root.Key("groups").Element(i)
		err := names.claim(at, c.Name)
		for k, name := range c.Sources {
			s, at := r.out.Source(name), at.Key("sources").Element(k)
			switch other, taken := members[name]; {
			case err != nil:
			case s == nil:
				err = at.Errorf("there is no source %q", name)
			case s.NoExposure != "":
				err = at.Errorf("source %q %s, so it is not known when its frames are exposed: name a camera", name, s.NoExposure)
			case taken:
				err = at.Errorf("source %q is in group %q already", name, other)
			case c.Trigger && s.Card.Name == "":
				err = at.Errorf("only an FPGA has a register that triggers source %q: trigger it by gpio.trigger, or leave trigger out", name)
			case c.Trigger && !s.Triggered:
				err = at.Errorf("source %q exposes by itself: write triggered: true there, or leave trigger out", name)
			}
			members[name] = c.Name
		}
		if n := len(c.Sources); err == nil && n > group.MaxMembers {
			err = at.Key("sources").Errorf("%d sources: a group has at most %d", n, group.MaxMembers)
		}
		if err == nil {
			err = c.resolve(at, r.shortest(c.Sources))
		}
		errs = append(errs, err)
	}
	return yamlfile.Join(errs...)
}

// shortest returns the shortest frame period of sources, or 0 if none is known.
func (r *resolver) shortest(names []string) (shortest time.Duration) {
	for _, name := range names {
		if p := r.out.Source(name).Format.Rate.Period(); p > 0 && (shortest == 0 || p < shortest) {
			shortest = p
		}
	}
	return shortest
}

// resolve fills in the defaults and refuses times that cannot be. frames is the shortest frame period of the sources, or 0.
func (c *Group) resolve(at yamlfile.Section, frames time.Duration) error {
	period, timed := c.Rate.V.Period(), c.Rate.V.Num > 0
	if c.Tolerance.V == 0 {
		if c.Tolerance.V = time.Millisecond; timed {
			c.Tolerance.V = min(time.Millisecond, period/4)
		}
	}
	switch {
	case !timed && c.Trigger:
		return at.Key("trigger").Errorf("give rate, too: it says when to trigger")
	case !timed && c.Delay.V != 0:
		return at.Key("delay").Errorf("give rate, too: the delay is from its instants")
	case c.Delay.V < 0 || timed && c.Delay.V >= period:
		return at.Key("delay").Errorf("%v: must be from 0 to less than the time from group to group, %v", c.Delay.V, period)
	case c.Tolerance.V < 0:
		return at.Key("tolerance").Errorf("%v: must not be negative", c.Tolerance.V)
	case !timed && frames > 0 && c.Tolerance.V >= frames/2:
		return at.Key("tolerance").Errorf("%v: must be less than half of the time from frame to frame, %v", c.Tolerance.V, frames/2)
	case timed && c.Tolerance.V >= period/2:
		return at.Key("tolerance").Errorf("%v: must be less than half of the time from group to group, %v", c.Tolerance.V, period/2)
	}
	return nil
}

// Groups returns the groups of the configuration.
func (a *Appliance) Groups() (list []group.Config) {
	for _, c := range a.file.Groups {
		g := group.Config{
			Name: c.Name, Sources: slices.Clone(c.Sources), Rate: c.Rate.V, Delay: c.Delay.V, Tolerance: c.Tolerance.V, Trigger: c.Trigger,
		}
		for _, name := range c.Sources {
			g.Period = max(g.Period, a.Source(name).Format.Rate.Period())
		}
		list = append(list, g)
	}
	return list
}
