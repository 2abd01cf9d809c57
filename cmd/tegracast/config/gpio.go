// SPDX-License-Identifier: Apache-2.0

package config

// GPIO lists the lines of the board that the service uses, except those that trigger recordings.
type GPIO struct {
	Trigger   *Trigger   `yaml:"trigger,omitempty" jsonschema_description:"Output: pulses that trigger cameras."`
	Strobe    *Strobe    `yaml:"strobe,omitempty" jsonschema_description:"Output: a lamp. With trigger it is on for width from each pulse, without trigger while the source exposes."`
	Reset     *Reset     `yaml:"reset,omitempty" jsonschema_description:"Output: resets the FPGA before it is opened, and as the last step of a camera's recovery."`
	LED       *LED       `yaml:"led,omitempty" jsonschema_description:"Output: on while everything streams, blinks while something recovers or stalls."`
	TriggerIn *TriggerIn `yaml:"trigger_in,omitempty" jsonschema_description:"Input: pulses from elsewhere that trigger the source. Each frame is matched with its edge."`
	PPS       *PPS       `yaml:"pps,omitempty" jsonschema_description:"Input: one pulse a second. It gives the offsets of the machine's clock and of the source's frames."`
}

// Trigger is a trigger that the board generates.
type Trigger struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"A pulse is a low voltage."`
	Rate      Rate     `yaml:"rate" jsonschema_description:"Pulses a second, such as 30 or 30000/1001, at the multiples of the period since 1970: those of a whole number are aligned to the second."`
	Width     Duration `yaml:"width,omitempty" jsonschema_description:"Length of a pulse (default 1ms, or half the time from pulse to pulse if that is less)."`
}

// Strobe is a lamp.
type Strobe struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"The lamp is on at a low voltage."`
	Source    string   `yaml:"source,omitempty" jsonschema_description:"Source whose exposures the lamp follows without trigger (default: the first one)."`
	Width     Duration `yaml:"width,omitempty" jsonschema_description:"How long the lamp is on (default: the exposure of the frames). Required with trigger."`
}

// Reset is the line that resets the FPGA.
type Reset struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"A low voltage resets."`
	Device    string   `yaml:"device,omitempty" jsonschema_description:"Device file of the FPGA that the line resets (default: that of the first source that has one)."`
	Assert    Duration `yaml:"assert,omitempty" jsonschema_description:"How long the FPGA is held in reset (default 10ms)."`
	Settle    Duration `yaml:"settle,omitempty" jsonschema_description:"Time from the end of the reset until the FPGA may be opened (default 200ms)."`
}

// LED is the status LED.
type LED struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"The LED is on at a low voltage."`
}

// TriggerIn is a trigger from an external device.
type TriggerIn struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"A pulse starts with a falling edge."`
	Source    string   `yaml:"source,omitempty" jsonschema_description:"The camera that the line triggers (default: the first source)."`
	Delay     Duration `yaml:"delay,omitempty" jsonschema_description:"Time from the edge to the start of the exposure (default 0s)."`
	Tolerance Duration `yaml:"tolerance,omitempty" jsonschema_description:"How far delay may be off, less than half of the frame period (default 1ms, or a quarter of the frame period)."`
}

// PPS is a pulse per second.
type PPS struct {
	Line      lineName `yaml:"line" jsonschema_description:"NAME, such as PQ.05, or CHIP:OFFSET, such as gpiochip0:5."`
	ActiveLow bool     `yaml:"active_low,omitempty" jsonschema_description:"The second starts with a falling edge."`
	Source    string   `yaml:"source,omitempty" jsonschema_description:"Source whose frames are compared with the pulse (default: the first one)."`
}
