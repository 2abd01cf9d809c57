// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"math"

	"github.com/tegracast/tegracast/fpga"
)

// tellable are the events of a camera block that the frames themselves do not count: how the report and the log call them. Frames
// that were dropped show in the sequence, and a packet is ended by force by this package.
var tellable = [numEvents]struct {
	bit          fpga.CameraEvents
	report, says string
}{
	{fpga.EventPadded, "padded", "the sensor delivers less than a frame: its end was padded with zeros"},
	{fpga.EventOverflow, "overflow", "samples were lost inside a frame"},
	{fpga.EventTriggerMissed, "missed_trigger", "a trigger came while a frame was being exposed, and was missed"},
}

const numEvents = 3

// listen takes the camera's events, which it announces by the user interrupt of its number (docs/fpga-interface.md, interrupts),
// until ctx ends or the device does not answer: that is the watchdog's to say. Events of one kind that come at once count as
// one. The first of each kind is logged.
func (s *session) listen(ctx context.Context) {
	info := s.camera.Info()
	if info.Caps&fpga.CapEvents == 0 || s.device.EnableUser(info.Index) != nil {
		return
	}
	defer func() { _ = s.device.DisableUser(info.Index) }() // its number is right: EnableUser took it
	var wanted fpga.CameraEvents
	for _, e := range tellable {
		wanted |= e.bit
	}
	_ = s.camera.Events() // those of before
	s.camera.EnableEvents(wanted)
	defer s.camera.EnableEvents(0)
	for s.device.WaitUser(ctx, info.Index) == nil {
		events := s.camera.Events()
		if events == math.MaxUint32 {
			return // the device has gone
		}
		s.tell(events & wanted)
	}
}

func (s *session) tell(events fpga.CameraEvents) {
	c := s.owner
	for i, e := range tellable {
		if events&e.bit == 0 {
			continue
		}
		c.events[i].Add(1)
		if s.told&e.bit == 0 {
			c.cfg.Logger.Warn("the camera reports: "+e.says, "source", c.cfg.Name, "after frame", c.last.Load())
		}
		s.told |= e.bit
	}
}
