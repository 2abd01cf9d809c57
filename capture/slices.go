// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/tegra"
)

// fillingFrame is a frame that was handed on before it was complete.
type fillingFrame struct {
	frame           *pipeline.Frame // nil if there is none
	slot            int
	sequence, start uint64 // as in a trailer, from the FPGA's registers; of a bare stream, the session's count and 0
	crc             uint32 // CRC of the pixels up to byte checked; not used for a bare stream
	checked         int
}

// Reasons why a frame that was handed on early is damaged. Its readers get an error that wraps one of them, or that
// says that the FPGA's registers and the trailer contradict each other.
var (
	errCut    = errors.New("the stream was interrupted inside the frame")
	errPixels = errors.New("its pixels do not match the FPGA's CRC")
)

// Limits of the time to wait for the filling frame when the stream is to end, which is otherwise two frame periods.
const (
	endLeast = 100 * time.Millisecond
	endMost  = time.Second
)

// slice returns the number of bytes of a frame that are handed on at a time, or 0 if frames are handed on only when
// complete.
func (s *session) slice() int {
	cfg := &s.owner.cfg
	if cfg.SliceLines == 0 {
		return 0
	}
	if !cfg.Bare {
		info := s.camera.Info()
		if info.Caps&fpga.CapOpenFrame == 0 {
			cfg.Logger.Info("frames are passed on only when they are complete: the FPGA does not report which one it is sending "+
				"(capability bit 6, docs/fpga-interface.md)",
				"source", cfg.Name)
			return 0
		}
	}
	n := cfg.SliceLines * s.owner.format.Stride
	return descriptors(n)
}

// part makes the lines that have arrived readable. When the first ones arrive, it hands the frame on, if possible.
func (s *session) part(done xdma.Completion, emit func(*pipeline.Frame)) error {
	f := &s.filling
	if f.frame == nil {
		if err := s.beginFrame(done, emit); err != nil || f.frame == nil {
			return err
		}
	}
	f.frame.Arrive(done.Filled / f.frame.Format.Stride)
	if s.camera != nil {
		f.check(done.Filled)
	}
	return nil
}

// beginFrame hands on a frame whose first lines have arrived, if its sequence number is certain; otherwise it does
// nothing, and the frame is handed on when it is complete. The FPGA's registers name the frame that is being
// transferred now: if it is the one after the latest frame seen, it is this frame. The frames of a bare stream have no
// number but the session's count, which is uncertain until the first frame after a restart, and their exposure is
// assumed to begin when the first lines arrive.
func (s *session) beginFrame(done xdma.Completion, emit func(*pipeline.Frame)) error {
	c := s.owner
	sequence, start, certain := s.next, uint64(0), !s.resumed
	if s.camera != nil {
		sequence, start = s.camera.OpenFrame()
		certain = sequence == s.next
	}
	if !certain {
		return nil
	}
	f, err := c.pool.Lease(done.Slot)
	if err != nil {
		return err
	}
	s.filling = fillingFrame{frame: f, slot: done.Slot, sequence: sequence, start: start}
	f.Sequence = s.base + sequence
	if s.camera != nil {
		s.mapTime(start)
		s.stamp(f, start)
	} else {
		f.Times.ExposureStart, f.Times.Uncertainty = time.Now(), c.cfg.Rate.Period()
	}
	f.Fill()
	f.Retain() // one of the two leases goes to the consumers
	f.Arrive(done.Filled / c.format.Stride)
	emit(f)
	return nil
}

// check continues the CRC over the pixels up to, but not including, byte end.
func (f *fillingFrame) check(end int) {
	f.crc, f.checked = crc.Castagnoli(f.crc, f.frame.Bytes[f.checked:end]), end
}

// complete ends the filling frame, whose trailer has arrived: with an error if the trailer contradicts the registers or
// the CRC.
func (s *session) complete(t fpga.Trailer, now time.Time) {
	c, f := s.owner, &s.filling
	s.next = t.Sequence + 1
	f.frame.Arrive(c.format.Height) // readers of the last lines need not wait for the CRC
	f.check(c.format.Size())
	var why error
	switch {
	case t.Sequence != f.sequence || t.Start != f.start:
		why = fmt.Errorf("the FPGA's registers said that it is frame %d, its trailer says %d", f.sequence, t.Sequence)
	case t.PixelCRC != f.crc:
		why = errPixels
	}
	if why != nil {
		c.refused.Add(1)
		c.cfg.Logger.Error("frame refused: "+why.Error(), "source", c.cfg.Name, "frame", s.base+f.sequence, "slot", f.slot)
		s.endFrame(why)
		return
	}
	c.describe(f.frame, t, now)
	c.countFrame(f.frame)
	s.endFrame(nil)
}

// cut ends the filling frame, if there is one, because the session ends. why is the fault, or nil if the session was
// stopped.
func (s *session) cut(why error) {
	if s.filling.frame == nil {
		return
	}
	s.next = s.filling.sequence + 1 // no other frame may get this number, even if the FPGA restarts from 0
	s.owner.completed = time.Now()  // from which the losses of a bare stream are estimated
	switch {
	case s.lost():
		s.endFrame(fmt.Errorf("%w: %w (%v)", errCut, tegra.ErrRevoked, s.why))
	case why != nil:
		s.endFrame(fmt.Errorf("%w: %w", errCut, why))
	default:
		s.endFrame(errCut)
	}
}

// mayEnd reports whether the session may wait for the rest of the filling frame: there is one, and ctx ended without a
// fault.
func (s *session) mayEnd(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return s.filling.frame != nil && (errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded))
}

// endFrame finishes the filling frame, and releases the session's lease on it.
func (s *session) endFrame(err error) {
	f := s.filling.frame
	s.filling = fillingFrame{}
	f.Finish(err)
	f.Release()
}
