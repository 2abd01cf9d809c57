// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"time"

	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
)

// ErrBare is returned for operations that need a camera block, which a bare stream lacks.
var ErrBare = errors.New("a bare stream has no camera block: its exposure and gain are the design's")

// takeBare emits a completed slot of a bare stream, or ends the filling frame. The only information about such a frame
// is the time at which it was complete.
func (s *session) takeBare(done xdma.Completion, emit func(*pipeline.Frame)) error {
	c := s.owner
	now, period := time.Now(), c.cfg.Rate.Period()
	f := s.filling.frame
	if f == nil {
		var err error
		if f, err = c.pool.Lease(done.Slot); err != nil {
			return err
		}
		if s.resumed {
			s.next += lostSince(now.Sub(c.completed), period)
		}
		f.Sequence = s.base + s.next
		f.Times.ExposureStart, f.Times.Uncertainty = now.Add(-period), period
	}
	s.resumed, c.completed = false, now
	s.next++
	f.Times.ExposureEnd, f.Times.Captured = now, now
	f.Flags |= pipeline.FlagUnverified
	if s.filling.frame == nil {
		c.deliver(f, emit)
		return nil
	}
	f.Arrive(c.format.Height)
	c.countFrame(f)
	s.endFrame(nil)
	return nil
}

// lostSince estimates how many frames were lost when the stream was restarted between two frames that are gap apart: at
// least one, because the restart itself falls into a frame.
func lostSince(gap, period time.Duration) uint64 {
	return uint64(max(1, (gap+period/2)/period-1))
}

// checkBare does the work of checkSession for a bare stream, which can be observed only through its frames.
func (s *supervisor) checkBare() State {
	c := s.camera
	frames := c.frames.Load()
	moved := frames != s.seen
	s.seen = frames
	switch {
	case moved:
		return Streaming
	case c.pool.Leased() >= c.cfg.Slots:
		return Idle
	}
	return Starting
}
