// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// RecordTrigger sets what a trigger keeps, and what triggers in addition to HTTP and SIGUSR1.
type RecordTrigger struct {
	Before Duration       `yaml:"before,omitempty" jsonschema_description:"How much before the trigger is kept, such as 10s (default: nothing)."`
	After  Duration       `yaml:"after,omitempty" jsonschema_description:"How much behind the trigger is kept, such as 20s (default: nothing)."`
	GPIO   *RecordGPIO    `yaml:"gpio,omitempty" jsonschema_description:"A line of the board whose rising edge triggers."`
	Result *TriggerResult `yaml:"result,omitempty" jsonschema_description:"A number that a stage finds in each frame. It triggers when it gets above a limit; while it is, the recording goes on."`
}

// RecordGPIO is a GPIO line of the board whose edges trigger the recording.
type RecordGPIO struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"A falling voltage triggers."`
}

// TriggerResult is a number in the results that triggers when it exceeds a limit.
type TriggerResult struct {
	Stage  string  `yaml:"stage" jsonschema:"minLength=1" jsonschema_description:"Name of the isp or kernel that finds it."`
	Number string  `yaml:"number" jsonschema:"minLength=1" jsonschema_description:"What the stage calls it in its results."`
	Above  float64 `yaml:"above" jsonschema_description:"The limit."`
}

// verify refuses invalid values.
func (c *RecordTrigger) verify(r *resolver, at yamlfile.Section, o *Output) error {
	for key, d := range map[string]Duration{"before": c.Before, "after": c.After} {
		if d.V < 0 {
			return at.Key(key).Errorf("%v: must not be less than 0", d.V)
		}
	}
	if c.Before.V == 0 && c.After.V == 0 {
		return at.Errorf("give before, after or both: else a trigger keeps nothing")
	}
	if x := c.Result; x != nil && !r.out.passes(o.From, x.Stage) {
		return at.Key("result").Key("stage").Errorf(
			"the frames of %q do not come through a stage %q: their results have nothing of it", o.From, x.Stage)
	}
	return nil
}

// passes reports whether the frames of the stage called name have passed through the stage called stage, which may be
// the same.
func (a *Appliance) passes(name, stage string) bool {
	for s := a.Stage(name); s != nil; s = a.Stage(s.From) {
		if s.Name == stage {
			return true
		}
	}
	return false
}

func (c *RecordGPIO) pin() gpio.Line { return pinOf(c.Line, c.ActiveLow) }

func (c *RecordGPIO) resolve(*resolver, yamlfile.Section, *Line) error { return nil }

// recordLine returns the name of the line that triggers an output.
func recordLine(output string) string { return "record-" + output }
