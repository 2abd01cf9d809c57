package main

import (
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/pipeline"
)

// GPIOConfig are the board's lines that the service uses.
type GPIOConfig struct {
	Trigger   *TriggerConfig `yaml:"trigger,omitempty" jsonschema_description:"Output: pulses that trigger cameras."`
	Strobe    *StrobeConfig  `yaml:"strobe,omitempty" jsonschema_description:"Output: a lamp. With trigger it is on for width from each pulse, without trigger while the source exposes."`
	Reset     *ResetConfig   `yaml:"reset,omitempty" jsonschema_description:"Output: resets the FPGA before it is opened, and as the last step of a camera's recovery."`
	LED       *LEDConfig     `yaml:"led,omitempty" jsonschema_description:"Output: on while everything streams, blinks while something recovers or stalls."`
	TriggerIn *EdgesConfig   `yaml:"trigger_in,omitempty" jsonschema_description:"Input: pulses from elsewhere that trigger the source. Each frame is matched with its edge."`
	PPS       *PPSConfig     `yaml:"pps,omitempty" jsonschema_description:"Input: one pulse a second. It gives the offsets of the machine's clock and of the source's frames."`
}

// lineName is how a line is written.
type lineName = word[gpio.Line]

// TriggerConfig is a trigger that the board makes.
type TriggerConfig struct {
	Line      lineName            `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema_description:"A pulse is a low voltage."`
	Rate      word[pipeline.Rate] `yaml:"rate" jsonschema_description:"Pulses a second, such as 30 or 30000/1001."`
	Width     word[time.Duration] `yaml:"width,omitempty" jsonschema_description:"Length of a pulse (default 1ms, or half the time from pulse to pulse if that is less)."`
}

// StrobeConfig is a lamp.
type StrobeConfig struct {
	Line      lineName            `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema_description:"The lamp is on at a low voltage."`
	Source    string              `yaml:"source,omitempty" jsonschema_description:"Source whose exposures the lamp follows without trigger (default: the first one)."`
	Width     word[time.Duration] `yaml:"width,omitempty" jsonschema_description:"How long the lamp is on (default: the exposure of the frames). Required with trigger."`
}

// ResetConfig is the FPGA's reset.
type ResetConfig struct {
	Line      lineName            `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema_description:"A low voltage resets."`
	Device    string              `yaml:"device,omitempty" jsonschema_description:"Device file of the FPGA that the line resets (default: that of the first source that has one)."`
	Assert    word[time.Duration] `yaml:"assert,omitempty" jsonschema_description:"How long the FPGA is held in reset (default 10ms)."`
	Settle    word[time.Duration] `yaml:"settle,omitempty" jsonschema_description:"Time from the end of the reset until the FPGA may be opened (default 200ms)."`
}

// LEDConfig is the status LED.
type LEDConfig struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"The LED is on at a low voltage."`
}

// EdgesConfig is a trigger that comes from elsewhere.
type EdgesConfig struct {
	Line      lineName            `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool                `yaml:"active_low,omitempty" jsonschema_description:"A pulse starts with a falling edge."`
	Source    string              `yaml:"source,omitempty" jsonschema_description:"The camera that the line triggers (default: the first source)."`
	Delay     word[time.Duration] `yaml:"delay,omitempty" jsonschema_description:"Time from the edge to the start of the exposure (default 0s)."`
	Tolerance word[time.Duration] `yaml:"tolerance,omitempty" jsonschema_description:"How far delay may be off, less than half of the frame period (default 1ms, or a quarter of the frame period)."`
}

// PPSConfig is a pulse per second.
type PPSConfig struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"The second starts with a falling edge."`
	Source    string   `yaml:"source,omitempty" jsonschema_description:"Source whose frames are compared with the pulse (default: the first one)."`
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
