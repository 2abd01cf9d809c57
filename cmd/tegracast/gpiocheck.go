package main

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
)

// lineOrder is the order in which lines are checked and opened.
func lineOrder() []string {
	return []string{resetLine, ledLine, triggerInLine, ppsLine, strobeLine, triggerLine}
}

// checkGPIO fills in the defaults and refuses what cannot be.
func (d *document) checkGPIO() error {
	lines, taken := d.GPIO.lines(), map[gpio.Line]string{}
	for _, name := range lineOrder() {
		line, ok := lines[name]
		if !ok {
			continue
		}
		line.ActiveLow = false
		if other, is := taken[line]; is {
			return d.errorAt("$.gpio."+name+".line", "%s is gpio.%s's line already: give it another one", line, other)
		}
		taken[line] = name
	}
	for _, check := range []func() error{d.checkTrigger, d.checkStrobe, d.checkReset, d.checkTriggerIn, d.checkPPS} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) checkTrigger() error {
	t := d.GPIO.Trigger
	if t == nil {
		return nil
	}
	t.Width.V = cmp.Or(t.Width.V, min(time.Millisecond, t.Rate.V.Period()/2))
	if period := t.Rate.V.Period(); t.Width.V < 0 || t.Width.V >= period {
		return d.errorAt("$.gpio.trigger.width", "%v: must be shorter than the time from pulse to pulse, %v", t.Width.V, period)
	}
	return nil
}

func (d *document) checkStrobe() error {
	s := d.GPIO.Strobe
	switch {
	case s == nil:
		return nil
	case s.Width.V < 0:
		return d.errorAt("$.gpio.strobe.width", "%v: must be above 0", s.Width.V)
	case d.GPIO.Trigger != nil && s.Source != "":
		return d.errorAt("$.gpio.strobe.source", "the strobe follows gpio.trigger: leave source out")
	case d.GPIO.Trigger != nil && (s.Width.V == 0 || s.Width.V >= d.GPIO.Trigger.Rate.V.Period()):
		return d.errorAt("$.gpio.strobe.width", "with gpio.trigger say how long it is on, less than %v from pulse to pulse", d.GPIO.Trigger.Rate.V.Period())
	case d.GPIO.Trigger != nil:
		return nil
	}
	source, err := d.watched("$.gpio.strobe.source", &s.Source)
	if err == nil && source.FPGA != nil && source.FPGA.Triggered {
		return d.errorAt("$.gpio.strobe", "when source %q will expose is known to who triggers it: configure gpio.trigger, or take the strobe of the camera", s.Source)
	}
	return err
}

// watched settles the source that a line looks at: a camera, whose frames say when they were exposed.
func (d *document) watched(path string, name *string) (*SourceConfig, error) {
	*name = cmp.Or(*name, d.Sources[0].Name)
	source := d.source(*name)
	switch {
	case source == nil:
		return nil, d.errorAt(path, "there is no source %q", *name)
	case source.File != nil:
		return nil, d.errorAt(path, "source %q is a file: name a camera", *name)
	case source.bare():
		return nil, d.errorAt(path, "source %q is a bare stream, and nobody knows when it was exposed: name a camera", *name)
	}
	return source, nil
}

func (d *document) checkReset() error {
	r := d.GPIO.Reset
	if r == nil {
		return nil
	}
	r.Assert.V, r.Settle.V = cmp.Or(r.Assert.V, 10*time.Millisecond), cmp.Or(r.Settle.V, 200*time.Millisecond)
	for key, v := range map[string]time.Duration{"assert": r.Assert.V, "settle": r.Settle.V} {
		if v < 0 || v > longestReset {
			return d.errorAt("$.gpio.reset."+key, "%v: must be up to %v", v, longestReset)
		}
	}
	i := slices.IndexFunc(d.Sources, func(s SourceConfig) bool {
		return s.FPGA != nil && (r.Device == "" || s.card() == filepath.Clean(r.Device))
	})
	if i < 0 {
		return d.errorAt("$.gpio.reset.device", "there is no source with an FPGA that it would reset: %q", r.Device)
	}
	r.Device = d.Sources[i].card()
	return nil
}

// longestReset keeps a reset well within the time that a camera's recovery, and systemd, give it.
const longestReset = 5 * time.Second

func (d *document) checkTriggerIn() error {
	e := d.GPIO.TriggerIn
	if e == nil {
		return nil
	}
	source, err := d.watched("$.gpio.trigger_in.source", &e.Source)
	if err != nil {
		return err
	}
	in, _ := source.format()
	period := in.Rate.Period()
	e.Tolerance.V = cmp.Or(e.Tolerance.V, min(time.Millisecond, period/4))
	switch {
	case e.Delay.V < 0:
		return d.errorAt("$.gpio.trigger_in.delay", "%v: an exposure does not begin before its trigger", e.Delay.V)
	case e.Tolerance.V < 0 || e.Tolerance.V >= period/2:
		return d.errorAt("$.gpio.trigger_in.tolerance", "%v: must be less than half of the frame period of source %q, %v", e.Tolerance.V, e.Source, period/2)
	}
	return nil
}

func (d *document) checkPPS() error {
	p := d.GPIO.PPS
	if p == nil {
		return nil
	}
	_, err := d.watched("$.gpio.pps.source", &p.Source)
	return err
}
