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

// filling is the frame that was handed on before it is complete.
type filling struct {
	frame           *pipeline.Frame // nil: there is none
	slot            int
	sequence, start uint64 // by the FPGA's registers; 0 of a bare stream
	crc             uint32 // of its first checked bytes; of a bare stream none is
	checked         int
}

// Why a frame is damaged that was handed on while it filled. Its readers get an error that wraps one of them.
var (
	errCut    = errors.New("the stream was interrupted inside the frame")
	errPixels = errors.New("its pixels do not match the FPGA's CRC")
)

// How long the frame that fills is waited for when the stream is to end.
const (
	endLeast = 100 * time.Millisecond
	endMost  = time.Second
)

// slice is how many bytes of a frame are handed on at once; 0: frames are handed on when they are complete.
func (s *session) slice() int {
	cfg := &s.owner.cfg
	if cfg.SliceLines == 0 {
		return 0
	}
	if !cfg.Bare {
		info := s.camera.Info()
		if info.Caps&fpga.CapOpenFrame == 0 {
			cfg.Logger.Info("frames are handed on when they are complete: the FPGA does not say which one leaves (capability bit 6, docs/fpga-interface.md)",
				"source", cfg.Name)
			return 0
		}
	}
	n := cfg.SliceLines * s.owner.format.Stride
	return descriptors(n)
}

// part hands on what has come of a frame.
func (s *session) part(done xdma.Completion, emit func(*pipeline.Frame)) error {
	f := &s.filling
	if f.frame == nil {
		if err := s.begin(done, emit); err != nil || f.frame == nil {
			return err
		}
	}
	f.frame.Arrive(done.Filled / f.frame.Format.Stride)
	if s.camera != nil {
		f.check(done.Filled)
	}
	return nil
}

// begin hands on a frame of which the first lines have come, if its number is certain; else it is handed on when it is complete.
// The FPGA's registers name the frame that leaves now: if that is the one after the last frame seen, it is this one. The
// frames of a bare stream are counted here, and their exposure is taken to begin with their first line.
func (s *session) begin(done xdma.Completion, emit func(*pipeline.Frame)) error {
	c := s.owner
	sequence, start, certain := s.next, uint64(0), !s.resumed
	at, uncertainty := time.Now(), c.cfg.Rate.Period()
	if s.camera != nil {
		sequence, start = s.camera.OpenFrame()
		certain = sequence == s.next
		at, uncertainty = c.clock.At(start)
	}
	if !certain {
		return nil
	}
	f, err := c.pool.Lease(done.Slot)
	if err != nil {
		return err
	}
	s.filling = filling{frame: f, slot: done.Slot, sequence: sequence, start: start}
	f.Sequence = s.base + sequence
	f.Times.ExposureStart, f.Times.Uncertainty = at, uncertainty
	f.Fill()
	f.Retain() // one lease goes to the consumers
	f.Arrive(done.Filled / c.format.Stride)
	emit(f)
	return nil
}

// check goes on with the CRC, up to byte end of the pixels.
func (f *filling) check(end int) {
	f.crc, f.checked = crc.Castagnoli(f.crc, f.frame.Bytes[f.checked:end]), end
}

// complete ends the frame that fills: its trailer has come.
func (s *session) complete(t fpga.Trailer, now time.Time) {
	c, f := s.owner, &s.filling
	s.next = t.Sequence + 1
	f.frame.Arrive(c.format.Height) // the last lines need not wait for the CRC
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
		s.end(why)
		return
	}
	c.describe(f.frame, t, now)
	c.whole(f.frame)
	s.end(nil)
}

// cut ends the frame that fills, if there is one, since the session ends: by why, or because it was told to.
func (s *session) cut(why error) {
	if s.filling.frame == nil {
		return
	}
	s.next = s.filling.sequence + 1 // also when the FPGA begins again from 0: no other frame has this number
	s.owner.completed = time.Now()  // what a bare stream loses is counted from now on
	switch {
	case s.lost():
		s.end(fmt.Errorf("%w: %w (%v)", errCut, tegra.ErrRevoked, s.why))
	case why != nil:
		s.end(fmt.Errorf("%w: %w", errCut, why))
	default:
		s.end(errCut)
	}
}

// mayEnd says whether the frame that fills can be waited for: nothing is wrong, the stream is just to end.
func (s *session) mayEnd(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return s.filling.frame != nil && (errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded))
}

// end finishes the frame that fills, and gives up the session's lease.
func (s *session) end(err error) {
	f := s.filling.frame
	s.filling = filling{}
	f.Finish(err)
	f.Release()
}
