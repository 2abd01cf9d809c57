// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
)

// Names of the lines: keys of the configuration, consumers and metrics.
const (
	TriggerLine   = "trigger"
	StrobeLine    = "strobe"
	ResetLine     = "reset"
	LEDLine       = "led"
	TriggerInLine = "trigger_in"
	PPSLine       = "pps"
)

// lineOrder is the order in which lines are opened.
var lineOrder = []string{ResetLine, LEDLine, TriggerInLine, PPSLine, StrobeLine, TriggerLine}

// A LineKind is what a line of the board is for: one of the fields of GPIO.
type LineKind interface {
	// pin is the line, with the level that is active.
	pin() gpio.Line
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for l.
	resolve(r *resolver, at section, l *Line) error
}

// Line is a line of the board.
type Line struct {
	Name    string        // its key
	Pin     gpio.Line     // with the level that is active
	Source  string        // whose frames it looks at; empty: none
	Period  time.Duration // from frame to frame of Source
	Follows bool          // of a strobe: the trigger's pulses, and no source
	Kind    LineKind
	At      Place // of its key line
}

// Same reports whether two lines are opened and work alike.
func (l *Line) Same(other *Line) bool {
	return l.Period == other.Period && l.Follows == other.Follows && same(l.Kind, other.Kind)
}

func (r *resolver) lines(root section) error {
	at := root.key("gpio")
	kinds, keys, _ := given[LineKind](r.file.GPIO)
	used := map[gpio.Line]string{}
	for _, name := range lineOrder {
		i := slices.Index(keys, name)
		if i < 0 {
			continue
		}
		l := Line{Name: name, Pin: kinds[i].pin(), Kind: kinds[i], At: at.key(name).key("line").place()}
		bare := l.Pin
		bare.ActiveLow = false
		if other, is := used[bare]; is {
			return at.key(name).key("line").errorf("%s is already the line of gpio.%s: give it another line", bare, other)
		}
		used[bare] = name
		if err := l.Kind.resolve(r, at.key(name), &l); err != nil {
			return err
		}
		r.out.Lines = append(r.out.Lines, l)
	}
	return nil
}

// watch settles the source that a line looks at: a camera, whose frames say when they were exposed.
func (l *Line) watch(at section, name *string, a *Appliance) (*Source, error) {
	*name = cmp.Or(*name, a.Sources[0].Name)
	source := a.Source(*name)
	switch {
	case source == nil:
		return nil, at.errorf("there is no source %q", *name)
	case source.NoExposure != "":
		return nil, at.errorf("source %q %s, so it is not known when its frames are exposed: name a camera", *name, source.NoExposure)
	}
	l.Source, l.Period = *name, source.Format.Rate.Period()
	return source, nil
}

// pinOf is a line with the level that is active.
func pinOf(l lineName, low bool) gpio.Line {
	l.V.ActiveLow = low
	return l.V
}

func (t *Trigger) pin() gpio.Line   { return pinOf(t.Line, t.ActiveLow) }
func (s *Strobe) pin() gpio.Line    { return pinOf(s.Line, s.ActiveLow) }
func (c *Reset) pin() gpio.Line     { return pinOf(c.Line, c.ActiveLow) }
func (c *LED) pin() gpio.Line       { return pinOf(c.Line, c.ActiveLow) }
func (e *TriggerIn) pin() gpio.Line { return pinOf(e.Line, e.ActiveLow) }
func (p *PPS) pin() gpio.Line       { return pinOf(p.Line, p.ActiveLow) }

func (t *Trigger) resolve(_ *resolver, at section, _ *Line) error {
	t.Width.V = cmp.Or(t.Width.V, min(time.Millisecond, t.Rate.V.Period()/2))
	if period := t.Rate.V.Period(); t.Width.V < 0 || t.Width.V >= period {
		return at.key("width").errorf("%v: must be shorter than the time from pulse to pulse, %v", t.Width.V, period)
	}
	return nil
}

func (s *Strobe) resolve(r *resolver, at section, l *Line) error {
	trigger := r.file.GPIO.Trigger
	switch {
	case s.Width.V < 0:
		return at.key("width").errorf("%v: must be above 0", s.Width.V)
	case trigger != nil && s.Source != "":
		return at.key("source").errorf("the strobe follows gpio.trigger: leave source out")
	case trigger != nil && (s.Width.V == 0 || s.Width.V >= trigger.Rate.V.Period()):
		return at.key("width").errorf("with gpio.trigger, give the time that it is on: less than %v, the time from pulse to pulse", trigger.Rate.V.Period())
	case trigger != nil:
		l.Follows = true
		return nil
	}
	source, err := l.watch(at.key("source"), &s.Source, r.out)
	if err == nil && source.Triggered {
		return at.errorf("only whoever triggers source %q knows when it exposes: configure gpio.trigger, or use the strobe of the camera", s.Source)
	}
	return err
}

// maxReset keeps a reset well within the time that a camera's recovery, and systemd, give it.
const maxReset = 5 * time.Second

func (c *Reset) resolve(r *resolver, at section, _ *Line) error {
	c.Assert.V, c.Settle.V = cmp.Or(c.Assert.V, 10*time.Millisecond), cmp.Or(c.Settle.V, 200*time.Millisecond)
	for key, v := range map[string]time.Duration{"assert": c.Assert.V, "settle": c.Settle.V} {
		if v < 0 || v > maxReset {
			return at.key(key).errorf("%v: must be up to %v", v, maxReset)
		}
	}
	i := slices.IndexFunc(r.out.Sources, func(s Source) bool {
		return s.Card.Name != "" && !s.Card.Own && (c.Device == "" || s.Card.Name == filepath.Clean(c.Device))
	})
	if i < 0 {
		return at.key("device").errorf("there is no source with this FPGA to reset: %q", c.Device)
	}
	c.Device = r.out.Sources[i].Card.Name
	return nil
}

func (c *LED) resolve(*resolver, section, *Line) error { return nil }

func (e *TriggerIn) resolve(r *resolver, at section, l *Line) error {
	if _, err := l.watch(at.key("source"), &e.Source, r.out); err != nil {
		return err
	}
	e.Tolerance.V = cmp.Or(e.Tolerance.V, min(time.Millisecond, l.Period/4))
	switch {
	case e.Delay.V < 0:
		return at.key("delay").errorf("%v: an exposure does not begin before its trigger", e.Delay.V)
	case e.Tolerance.V < 0 || e.Tolerance.V >= l.Period/2:
		return at.key("tolerance").errorf("%v: must be less than half of the frame period of source %q, %v", e.Tolerance.V, e.Source, l.Period/2)
	}
	return nil
}

func (p *PPS) resolve(r *resolver, at section, l *Line) error {
	_, err := l.watch(at.key("source"), &p.Source, r.out)
	return err
}
