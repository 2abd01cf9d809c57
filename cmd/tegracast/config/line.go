// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// Names of the lines, as used for keys of the configuration, for GPIO consumers and for metrics.
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

// watch sets l.Source and l.Period from the source called *name, and returns that source. If *name is empty, watch sets
// it to the first source. The source must be a camera whose frames carry their exposure times.
func (l *Line) watch(at yamlfile.Section, name *string, a *Appliance) (*Source, error) {
	*name = cmp.Or(*name, a.Sources[0].Name)
	source := a.Source(*name)
	switch {
	case source == nil:
		return nil, at.Errorf("there is no source %q", *name)
	case source.NoExposure != "":
		return nil, at.Errorf("source %q %s, so it is not known when its frames are exposed: name a camera", *name, source.NoExposure)
	}
	l.Source, l.Period = *name, source.Format.Rate.Period()
	return source, nil
}

// pinOf returns the line that l names, active low if low is true.
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

func (t *Trigger) resolve(_ *resolver, at yamlfile.Section, _ *Line) error {
	t.Width.V = cmp.Or(t.Width.V, min(time.Millisecond, t.Rate.V.Period()/2))
	if period := t.Rate.V.Period(); t.Width.V < 0 || t.Width.V >= period {
		return at.Key("width").Errorf("%v: must be shorter than the time from pulse to pulse, %v", t.Width.V, period)
	}
	return nil
}

func (s *Strobe) resolve(r *resolver, at yamlfile.Section, l *Line) error {
	trigger := r.file.GPIO.Trigger
	switch {
	case s.Width.V < 0:
		return at.Key("width").Errorf("%v: must be above 0", s.Width.V)
	case trigger != nil && s.Source != "":
		return at.Key("source").Errorf("the strobe follows gpio.trigger: leave source out")
	case trigger != nil && (s.Width.V == 0 || s.Width.V >= trigger.Rate.V.Period()):
		return at.Key("width").Errorf("with gpio.trigger, give the time that it is on: less than %v, the time from pulse to pulse", trigger.Rate.V.Period())
	case trigger != nil:
		l.Follows = true
		return nil
	}
	source, err := l.watch(at.Key("source"), &s.Source, r.out)
	if err == nil && source.Triggered {
		return at.Errorf("only whoever triggers source %q knows when it exposes: configure gpio.trigger, or use the strobe of the camera", s.Source)
	}
	return err
}

// maxReset is the maximum of each of the keys assert and settle of a reset line. It keeps a reset well below the time
// limits of a camera's recovery and of systemd.
const maxReset = 5 * time.Second

func (c *Reset) resolve(r *resolver, at yamlfile.Section, _ *Line) error {
	c.Assert.V, c.Settle.V = cmp.Or(c.Assert.V, 10*time.Millisecond), cmp.Or(c.Settle.V, 200*time.Millisecond)
	for key, v := range map[string]time.Duration{"assert": c.Assert.V, "settle": c.Settle.V} {
		if v < 0 || v > maxReset {
			return at.Key(key).Errorf("%v: must be up to %v", v, maxReset)
		}
	}
	i := slices.IndexFunc(r.out.Sources, func(s Source) bool {
		return s.Card.Name != "" && !s.Card.Own && (c.Device == "" || s.Card.Name == filepath.Clean(c.Device))
	})
	if i < 0 {
		return at.Key("device").Errorf("there is no source with this FPGA to reset: %q", c.Device)
	}
	c.Device = r.out.Sources[i].Card.Name
	return nil
}

func (c *LED) resolve(*resolver, yamlfile.Section, *Line) error { return nil }

func (e *TriggerIn) resolve(r *resolver, at yamlfile.Section, l *Line) error {
	if _, err := l.watch(at.Key("source"), &e.Source, r.out); err != nil {
		return err
	}
	e.Tolerance.V = cmp.Or(e.Tolerance.V, min(time.Millisecond, l.Period/4))
	switch {
	case e.Delay.V < 0:
		return at.Key("delay").Errorf("%v: an exposure does not begin before its trigger", e.Delay.V)
	case e.Tolerance.V < 0 || e.Tolerance.V >= l.Period/2:
		return at.Key("tolerance").Errorf("%v: must be less than half of the frame period of source %q, %v", e.Tolerance.V, e.Source, l.Period/2)
	}
	return nil
}

func (p *PPS) resolve(r *resolver, at yamlfile.Section, l *Line) error {
	_, err := l.watch(at.Key("source"), &p.Source, r.out)
	return err
}
