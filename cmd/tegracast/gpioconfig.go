package main

import (
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/pipeline"
)

// GPIOConfig are the board's lines that the service uses.
type GPIOConfig struct {
	Trigger   *TriggerConfig `yaml:"trigger,omitempty" jsonschema:"description=out: pulses that trigger cameras"`
	Strobe    *StrobeConfig  `yaml:"strobe,omitempty" jsonschema:"description=out: a lamp; on from each pulse of trigger for width or (without trigger) while the source exposes"`
	Reset     *ResetConfig   `yaml:"reset,omitempty" jsonschema:"description=out: resets the FPGA before it is opened and as the last step of a camera's recovery"`
	LED       *LEDConfig     `yaml:"led,omitempty" jsonschema:"description=out: on while all streams; blinks while something recovers or stalls"`
	TriggerIn *EdgesConfig   `yaml:"trigger_in,omitempty" jsonschema:"description=in: the pulses that trigger the source from elsewhere; each frame is matched with its edge"`
	PPS       *PPSConfig     `yaml:"pps,omitempty" jsonschema:"description=in: a pulse per second; gives the offsets of the machine's clock and of the source's frames"`
}

// lineName is how a line is written.
type lineName = word[gpio.Line]

// TriggerConfig is a trigger that the board makes.
type TriggerConfig struct {
	Line      lineName            `yaml:"line" jsonschema:"description=NAME such as PQ.05 or CHIP:OFFSET such as gpiochip0:5"`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema:"description=a pulse is a low voltage"`
	Rate      word[pipeline.Rate] `yaml:"rate" jsonschema:"description=pulses a second as 30 or 30000/1001"`
	Width     word[time.Duration] `yaml:"width,omitempty" jsonschema:"description=of a pulse such as 1ms; default 1ms"`
}

// StrobeConfig is a lamp.
type StrobeConfig struct {
	Line      lineName            `yaml:"line" jsonschema:"description=NAME or CHIP:OFFSET"`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema:"description=on is a low voltage"`
	Source    string              `yaml:"source,omitempty" jsonschema:"description=whose exposures it follows where there is no trigger; default: the first one"`
	Width     word[time.Duration] `yaml:"width,omitempty" jsonschema:"description=how long it is on; default: the exposure as the frames have it; needed with trigger"`
}

// ResetConfig is the FPGA's reset.
type ResetConfig struct {
	Line      lineName            `yaml:"line" jsonschema:"description=NAME or CHIP:OFFSET"`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema:"description=a low voltage resets"`
	Device    string              `yaml:"device,omitempty" jsonschema:"description=device file of the FPGA that it resets; default: that of the first source with one"`
	Assert    word[time.Duration] `yaml:"assert,omitempty" jsonschema:"description=how long it is in reset; default 10ms"`
	Settle    word[time.Duration] `yaml:"settle,omitempty" jsonschema:"description=from the end of the reset until it may be opened; default 200ms"`
}

// LEDConfig is the status LED.
type LEDConfig struct {
	Line      lineName `yaml:"line" jsonschema:"description=NAME or CHIP:OFFSET"`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema:"description=on is a low voltage"`
}

// EdgesConfig is a trigger that comes from elsewhere.
type EdgesConfig struct {
	Line      lineName            `yaml:"line" jsonschema:"description=NAME or CHIP:OFFSET"`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema:"description=a pulse begins with a falling edge"`
	Source    string              `yaml:"source,omitempty" jsonschema:"description=the camera that it triggers; default: the first source"`
	Delay     word[time.Duration] `yaml:"delay,omitempty" jsonschema:"description=from the edge to the beginning of the exposure; default 0s"`
	Tolerance word[time.Duration] `yaml:"tolerance,omitempty" jsonschema:"description=by which delay may be off; less than half of the frame period; default 1ms or a quarter of the period"`
}

// PPSConfig is a pulse per second.
type PPSConfig struct {
	Line      lineName `yaml:"line" jsonschema:"description=NAME or CHIP:OFFSET"`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema:"description=the second begins with a falling edge"`
	Source    string   `yaml:"source,omitempty" jsonschema:"description=whose frames it is compared with; default: the first source"`
}

// Names of the lines: keys of the configuration, consumers and metrics.
const (
	triggerLine   = "trigger"
	strobeLine    = "strobe"
	resetLine     = "reset"
	ledLine       = "led"
	triggerInLine = "trigger_in"
	ppsLine       = "pps"
)

// lines lists the lines that a configuration has, with the level that is active.
func (c *GPIOConfig) lines() map[string]gpio.Line {
	list := map[string]gpio.Line{}
	add := func(name string, l lineName, low bool) {
		l.V.ActiveLow = low
		list[name] = l.V
	}
	if t := c.Trigger; t != nil {
		add(triggerLine, t.Line, t.ActiveLow)
	}
	if s := c.Strobe; s != nil {
		add(strobeLine, s.Line, s.ActiveLow)
	}
	if r := c.Reset; r != nil {
		add(resetLine, r.Line, r.ActiveLow)
	}
	if l := c.LED; l != nil {
		add(ledLine, l.Line, l.ActiveLow)
	}
	if e := c.TriggerIn; e != nil {
		add(triggerInLine, e.Line, e.ActiveLow)
	}
	if p := c.PPS; p != nil {
		add(ppsLine, p.Line, p.ActiveLow)
	}
	return list
}

// source is the source that a line looks at; empty when it looks at none.
func (c *GPIOConfig) source(name string) string {
	switch {
	case name == strobeLine && c.Strobe != nil:
		return c.Strobe.Source
	case name == triggerInLine && c.TriggerIn != nil:
		return c.TriggerIn.Source
	case name == ppsLine && c.PPS != nil:
		return c.PPS.Source
	}
	return ""
}
