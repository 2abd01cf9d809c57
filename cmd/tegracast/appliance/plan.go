// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// plan lists the parts of a configuration to open, or to close and open again.
type plan struct {
	memory, web, rtsp bool
	bus               bool
	patient           bool            // outputs that cannot be opened now may be opened later
	flows             map[string]bool // by the source's name
	outputs           map[string]bool
	lines             map[string]bool
	cards             map[string]bool // FPGAs whose polling or clock changes; all their users are reopened
	adjusted          map[string]bool // stages and outputs that keep running and get new values
}

func emptyPlan() plan {
	return plan{flows: map[string]bool{}, outputs: map[string]bool{}, lines: map[string]bool{}, cards: map[string]bool{}, adjusted: map[string]bool{}}
}

// everything returns a plan of all parts except RTSP, for a start.
func everything(c *config.Appliance) plan {
	p := emptyPlan()
	p.memory, p.web, p.bus = true, true, true
	for _, l := range c.Lines {
		p.lines[l.Name] = true
	}
	for _, s := range c.Sources {
		p.flows[s.Name] = true
	}
	for _, o := range c.Outputs {
		p.outputs[o.Name] = true
	}
	return p
}

// planned returns the parts to reopen when old is replaced by new: parts that change, flows whose source or stages
// change, with their outputs and lines, outputs whose card is closed, and all flows if the memory changes. It also
// names the parts to adjust.
func planned(old, new *config.Appliance) plan {
	p := emptyPlan()
	p.memory, p.web, p.rtsp = old.Memory != new.Memory, !old.Web.Equal(new.Web), old.RTSP != new.RTSP
	p.bus = !yamlfile.Same(old.Bus, new.Bus)
	for _, c := range [][2]*config.Appliance{{old, new}, {new, old}} {
		p.compare(c[0], c[1])
	}
	for _, c := range []*config.Appliance{old, new} {
		p.follow(c)
	}
	return p
}

// compare adds the parts of one configuration that are missing or different in the other, also those that are only to
// be adjusted.
func (p plan) compare(one, other *config.Appliance) {
	clock := !yamlfile.Same(one.Clock, other.Clock)
	for i := range one.Sources {
		s, o := &one.Sources[i], other.Source(one.Sources[i].Name)
		if p.memory || o == nil || !s.Same(o) {
			p.flows[s.Name] = true
		}
		if clock && s.Card.Name != "" { // a card's clock is set before its cameras run
			p.flows[s.Name], p.cards[s.Card.Name] = true, true
		}
		for _, o := range other.Sources {
			if o.Card.Name == s.Card.Name && o.Card.Poll != s.Card.Poll { // a DMA engine signals completions in one way only
				p.cards[s.Card.Name] = true
			}
		}
	}
	for i := range one.Stages {
		s, o := &one.Stages[i], other.Stage(one.Stages[i].Name)
		switch {
		case o == nil || !s.Adjusts(o):
			p.flows[s.Source] = true
		case !s.Same(o):
			p.adjusted[s.Name] = true
		}
	}
	for i := range one.Outputs {
		o, x := &one.Outputs[i], other.Output(one.Outputs[i].Name)
		switch {
		case x == nil || !o.Adjusts(x):
			p.outputs[o.Name] = true
		case !o.Same(x):
			p.adjusted[o.Name] = true
		}
	}
	for i := range one.Lines {
		if l, o := &one.Lines[i], other.Line(one.Lines[i].Name); o == nil || !l.Same(o) {
			p.lines[l.Name] = true
		}
	}
}

// follow adds the outputs and lines of reopened flows, and the outputs whose card is closed.
func (p plan) follow(c *config.Appliance) {
	for i := range c.Lines {
		if l := &c.Lines[i]; p.flows[l.Source] {
			p.lines[l.Name] = true
		}
	}
	for i := range c.Outputs {
		if o := &c.Outputs[i]; p.flows[o.Source] || p.loses(c, o) {
			p.outputs[o.Name] = true
		}
	}
}

// loses reports whether the plan closes the card of an output. A card that belongs to a single source is closed with
// the source.
func (p plan) loses(c *config.Appliance, o *config.Output) bool {
	if o.Card == "" {
		return false
	}
	s := c.Source(o.Card)
	return p.cards[o.Card] || s != nil && s.Card.Own && p.flows[s.Name]
}
