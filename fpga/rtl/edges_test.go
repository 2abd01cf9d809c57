// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
)

// restart restarts the camera, whether or not a packet is open. An open packet is finished and not counted.
func restart(d *design, seed uint64) (open bool, err error) {
	s, err := randomShoot(d, seed)
	defer s.close()
	if err != nil {
		return false, err
	}
	s.triggered = false
	s.startCamera()
	s.cycles(int(s.exposure)/clockNS + s.rnd.IntN(600))
	s.Write32(fpga.CamControl, 0)
	s.pressure(s.c, 0, 1, 0) // nothing more is accepted
	s.cycles(2)
	if err := s.collect(); err != nil {
		return false, err
	}
	open = s.Read32(fpga.CamStatus)&uint32(fpga.StatusPacketOpen) != 0
	old := *s
	s.frames = 0
	s.startCamera()
	stopped := seed%3 == 0
	if stopped { // the open packet is dropped and not counted
		s.channel(s.c, 0, 0)
		s.cycles(10)
		s.channel(s.c, 1, 1)
	}
	s.pressure(s.c, 256, 1, 0)
	s.cycles(2*maxWidth*maxHeight + 3000)
	if open && !stopped {
		if err := old.check(s.simulation.next()); err != nil {
			return open, fmt.Errorf("the packet that was open: %w", err)
		}
	}
	return open, errors.Join(s.collect(), s.stopCamera())
}

func restarts(d *design) error {
	stale := 0
	for seed := uint64(1); seed <= 12; seed++ {
		open, err := restart(d, seed)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if open {
			stale++
		}
	}
	if stale == 0 || stale == 12 {
		return fmt.Errorf("a packet was open at %d of 12 restarts, want some", stale)
	}
	return nil
}

func TestRestart(t *testing.T) {
	if err := restarts(theDesign(t)); err != nil {
		t.Error(err)
	}
}

// small returns a shoot of frames with one line of stamp and one of texture.
func small(d *design, exposure uint64) (*shoot, error) {
	s := &shoot{
		simulation: d.start(9, true), rnd: rand.New(rand.NewPCG(9, 9)), width: 64, height: 2, format: fourCC("GREY"),
		period: 100_000, exposure: exposure,
	}
	var err error
	s.sensor, err = model.NewSensor(model.SensorConfig{
		Width: s.width, Height: s.height, Format: s.format, Shift: 2, Frames: [][]byte{rtltest.Texture(s.width, s.height, s.format)},
		Period: time.Duration(s.period), Exposure: time.Duration(s.exposure),
	})
	return s, err
}

// wraps receives frames until the texture has moved by more than its width.
func wraps(d *design) error {
	s, err := small(d, 1000)
	defer s.close()
	if err != nil {
		return err
	}
	s.startCamera()
	s.cycles(40 * int(s.period) / clockNS)
	if err := errors.Join(s.collect(), s.stopCamera()); err != nil {
		return err
	}
	if s.frames < 40 {
		return fmt.Errorf("%d frames came, want 40", s.frames)
	}
	return nil
}

// forcedEnds ends packets by command after each of their beats. They must be short or whole, whether or not the host
// accepts more at that moment.
func forcedEnds(d *design) error {
	s, err := small(d, 1000)
	defer s.close()
	if err != nil {
		return err
	}
	s.triggered = true
	s.startCamera()
	for i := range 40 {
		beats, stops := i/2, i%2 == 0
		s.pressure(s.c, 0, 1, 0)
		s.Write32(fpga.CamCommand, fpga.CommandTrigger)
		s.cycles(300) // the frame is in the memory, and its first beat is offered
		s.pressure(s.c, 256, 1, 0)
		s.cycles(beats)
		if stops {
			s.pressure(s.c, 0, 1, 0)
		}
		s.forces++
		s.Write32(fpga.CamCommand, fpga.CommandForceEOP)
		s.pressure(s.c, 256, 1, 0)
		s.cycles(100)
		if err := s.collect(); err != nil {
			return fmt.Errorf("ended after %d beats: %w", beats, err)
		}
	}
	if s.cut == 0 || s.frames == 0 {
		return fmt.Errorf("%d packets were short, %d whole, want some of both", s.cut, s.frames)
	}
	return s.stopCamera()
}

func TestWraps(t *testing.T) {
	if err := wraps(theDesign(t)); err != nil {
		t.Error(err)
	}
}

func TestForcedEnds(t *testing.T) {
	if err := forcedEnds(theDesign(t)); err != nil {
		t.Error(err)
	}
}
