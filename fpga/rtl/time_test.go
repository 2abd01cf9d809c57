// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// step adds ns to the timestamp counter.
func (s *simulation) step(by uint64) {
	s.Write32(fpga.CamTimeStepLow, uint32(by))
	s.Write32(fpga.CamTimeStepHigh, uint32(by>>32))
}

// timeIsSet steps the counter up and down by arbitrary amounts while frames are captured. The frame timer must not be
// affected. Then it runs the counter at other rates.
func timeIsSet(d *design) error {
	s := d.start(5, true)
	defer s.close()
	rnd := rand.New(rand.NewPCG(5, 25))
	const period, exposure, width, height = 120_000, 30_000, model.StampSamples, 2
	s.pressure(s.c, 256, 1, 0)
	s.channel(s.c, 1, 1)
	for off, v := range map[uint32]uint32{
		fpga.CamWidth: width, fpga.CamHeight: height, fpga.CamFormat: uint32(fourCC("RG10")), fpga.CamPeriod: period, fpga.CamExposure: exposure,
	} {
		s.Write32(off, v)
	}
	camera, err := fpga.OpenCameraBlock(s, 0)
	if err != nil {
		return err
	}
	s.Write32(fpga.CamControl, fpga.CameraRun)
	var begun, stepped, before uint64 // start of frame 0; sums of the steps, now and before the last one
	frames := uint64(0)
	for range 40 {
		for s.Read32(fpga.CamStatus)&uint32(fpga.StatusExposing) == 0 { // during readout, times would be inconsistent
			s.cycles(20)
		}
		by := rnd.Uint64()>>1 - s.time()
		was := s.time()
		camera.StepTime(time.Duration(by))
		if is := s.time() - was - by; is < clockNS || is > 50*clockNS {
			return fmt.Errorf("a step by %d took the counter from %d to %d", int64(by), was, was+by+is)
		}
		stepped, before = stepped+by, stepped
		if read := s.read64(fpga.CamTimeLow); read < was+by || read > s.time() {
			return fmt.Errorf("the counter reads %d at %d", read, s.time())
		}
		s.cycles(3 * period / clockNS)
		open := s.read64(fpga.CamOpenLow)
		if start := uint64(s.Read32(fpga.CamOpenStartLow)) | uint64(s.Read32(fpga.CamOpenStartHigh))<<32; start-stepped != begun+open*period && begun != 0 {
			return fmt.Errorf("the open frame, %d, began at %d, want %d", open, start, begun+open*period+stepped)
		}
		for p := s.next(); p != nil; p = s.next() {
			t, err := fpga.ParseTrailer(p[len(p)-fpga.TrailerSize:])
			if err != nil {
				return err
			}
			if t.Sequence == 0 {
				begun = t.Start - stepped
			}
			at := begun + t.Sequence*period
			if t.Sequence != frames || t.Start != at+stepped && t.Start != at+before || t.End != t.Start+exposure {
				return fmt.Errorf("frame %d, which is the next after %d, was exposed from %d to %d, want from %d or %d",
					t.Sequence, frames, t.Start, t.End, at+stepped, at+before)
			}
			frames++
		}
	}
	if frames < 100 {
		return fmt.Errorf("only %d frames came", frames)
	}
	if err := s.counts(period); err != nil {
		return err
	}
	return s.rates(camera)
}

// counts drops a few hundred frames, because the channel does not run, and misses a few hundred triggers.
func (s *simulation) counts(period uint64) error {
	const most = 300
	s.channel(s.c, 0, 0)
	dropped := s.Read32(fpga.CamDropped)
	s.cycles(most * int(period) / clockNS)
	if n := s.Read32(fpga.CamDropped) - dropped; n < most-2 || n > most+2 {
		return fmt.Errorf("%d frames were dropped, want about %d", n, most)
	}
	s.Write32(fpga.CamControl, 0)
	s.Write32(fpga.CamExposure, 10_000_000)
	s.Write32(fpga.CamControl, fpga.CameraRun|fpga.CameraTriggered)
	for range 1 + most {
		s.Write32(fpga.CamCommand, fpga.CommandTrigger)
	}
	if n := s.Read32(fpga.CamTriggerMissed); n != most {
		return fmt.Errorf("%d triggers were missed, want %d", n, most)
	}
	return nil
}

// rates runs the counter faster and slower.
func (s *simulation) rates(camera *fpga.Camera) error {
	for _, c := range []struct{ write, want int32 }{
		{1000, 1000},
		{-1000, -1000},
		{7_654_321, 1_000_000},
		{-1 << 31, -1_000_000},
		{123_456, 123_456},
		{0, 0},
	} {
		camera.SetTimeRate(c.write)
		if is := camera.TimeRate(); is != c.want {
			return fmt.Errorf("the rate %d reads %d, want %d", c.write, is, c.want)
		}
		const cycles = 100_000
		was := s.time()
		s.cycles(cycles)
		want := cycles*clockNS + int64(c.want)*cycles*clockNS/1_000_000_000
		if is := int64(s.time() - was); is < want-1 || is > want+1 {
			return fmt.Errorf("at a rate of %d the counter ran by %d ns, want %d", c.want, is, want)
		}
	}
	return s.rules()
}

func TestTimeIsSet(t *testing.T) {
	if err := timeIsSet(theDesign(t)); err != nil {
		t.Error(err)
	}
}
