// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"math"

	"github.com/tegracast/tegracast/fpga"
)

// tellable lists the camera block's events that are counted and logged, with their names in the status report and the
// log. Events for dropped frames are not among them because drops show as gaps in the sequence, nor is the event for
// packets ended by force, because this package forces that itself.
var tellable = [numEvents]struct {
	bit          fpga.CameraEvents
	report, says string
}{
	{fpga.EventPadded, "padded", "the sensor delivers less than a frame: its end was padded with zeros"},
	{fpga.EventOverflow, "overflow", "samples were lost inside a frame"},
	{fpga.EventTriggerMissed, "missed_trigger", "a trigger came while a frame was being exposed, and was missed"},
}

const numEvents = 3

// listen receives the camera's events, which are announced by the user interrupt with the camera's number
// (docs/fpga-interface.md, interrupts), until ctx ends or waiting fails, which is left to the watchdog to report. It
// returns at once if the camera cannot announce events. Events of one kind that occur together count as one. The first
// event of each kind in a session is logged.
func (s *session) listen(ctx context.Context) {
	info := s.camera.Info()
	if info.Caps&fpga.CapEvents == 0 || s.device.EnableUser(info.Index) != nil {
		return
	}
	defer func() { _ = s.device.DisableUser(info.Index) }() // cannot fail, because EnableUser accepted the index
	var wanted fpga.CameraEvents
	for _, e := range tellable {
		wanted |= e.bit
	}
	_ = s.camera.Events() // discards earlier events
	s.camera.EnableEvents(wanted)
	defer s.camera.EnableEvents(0)
	for s.device.WaitUser(ctx, info.Index) == nil {
		events := s.camera.Events()
		if events == math.MaxUint32 {
			return // the device is gone
		}
		s.logEvents(events & wanted)
	}
}

func (s *session) logEvents(events fpga.CameraEvents) {
	c := s.owner
	for i, e := range tellable {
		if events&e.bit == 0 {
			continue
		}
		c.events[i].Add(1)
		if s.told&e.bit == 0 {
			c.cfg.Logger.Warn("the camera reports: "+e.says, "source", c.cfg.Name, "after frame", c.states.last.Load())
		}
		s.told |= e.bit
	}
}
