// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
)

// noBus is a bus without host memory.
type noBus struct{}

var errNoBus = errors.New("no memory here")

func (noBus) Read(uint64, []byte) error  { return errNoBus }
func (noBus) Write(uint64, []byte) error { return errNoBus }

// modelBlock returns the camera block of a model with the simulated design's geometry and reset values.
func modelBlock() (fpga.Registers, error) {
	f := fourCC("RG10")
	s, err := model.NewSensor(model.SensorConfig{
		Width: maxWidth, Height: maxHeight, Format: f, Frames: [][]byte{rtltest.Texture(maxWidth, maxHeight, f)}, Period: 200_000, Exposure: 50_000,
	})
	if err != nil {
		return nil, err
	}
	d, err := model.New(model.Camera(noBus{}, s))
	if err != nil {
		return nil, err
	}
	for _, b := range d.BARs() {
		if b.Registers.Read32(fpga.CamMagic) == fpga.CameraMagic {
			return b.Registers, nil
		}
	}
	return nil, errors.New("the model has no camera block")
}

// badConfig reports whether the registers have a configuration error of the simulated design, as documented.
func badConfig(read func(uint32) uint32) bool {
	width, height, format := read(fpga.CamWidth), read(fpga.CamHeight), fpga.FourCC(read(fpga.CamFormat))
	return width < model.StampSamples || width > maxWidth || height < 1 || height > maxHeight || !format.Sensor() ||
		int(width*height)*format.SampleBytes()%fpga.FrameAlign != 0 ||
		read(fpga.CamControl)&fpga.CameraTriggered == 0 &&
			(read(fpga.CamPeriod) < read(fpga.CamMinPeriod) || read(fpga.CamExposure) > read(fpga.CamPeriod))
}

// expect returns what the design must read at off when the model reads m. They differ because the design has no gain, and
// supports every geometry and format where the model's sensor has one of each.
func expect(off, m uint32, read func(uint32) uint32) uint32 {
	format := fpga.FourCC(read(fpga.CamFormat))
	switch off {
	case fpga.CamCapabilities:
		return m &^ uint32(fpga.CapGain)
	case fpga.CamGain:
		return 256
	case fpga.CamStatus:
		m &^= uint32(fpga.StatusConfigError)
		if badConfig(read) {
			m |= uint32(fpga.StatusConfigError)
		}
	case fpga.CamBits:
		if format.Sensor() {
			return uint32(format.Bits())
		}
	case fpga.CamStride, fpga.CamFrameBytes:
		if !format.Sensor() {
			return 0
		}
	}
	return m
}

// someValue returns a value for a register, often a valid one.
func someValue(rnd *rand.Rand, off uint32) uint32 {
	if rnd.IntN(3) == 0 {
		return rnd.Uint32()
	}
	switch off {
	case fpga.CamControl:
		return uint32(rnd.IntN(4))
	case fpga.CamFormat:
		return uint32(fourCC(formats[rnd.IntN(len(formats))]))
	case fpga.CamWidth:
		return uint32(rnd.IntN(maxWidth + 2))
	case fpga.CamHeight:
		return uint32(rnd.IntN(maxHeight + 2))
	case fpga.CamPeriod, fpga.CamExposure:
		return uint32(99_990 + rnd.IntN(20))
	}
	return uint32(rnd.IntN(64))
}

// compareBlocks compares both blocks, except for the time.
func compareBlocks(s *simulation, ref fpga.Registers) error {
	for off := uint32(0); off < 0x100; off += 4 {
		if off == fpga.CamTimeLow || off == fpga.CamTimeHigh {
			continue
		}
		if got, want := s.Read32(off), expect(off, ref.Read32(off), ref.Read32); got != want {
			return fmt.Errorf("register %#05x is %#x, want %#x", off, got, want)
		}
	}
	return nil
}

// registers writes random values to both camera blocks and compares all registers, except those of a running camera.
func registers(d *design) error {
	ref, err := modelBlock()
	if err != nil {
		return err
	}
	s := d.start(1, true)
	defer s.close()
	s.step(0) // registers in reset state
	s.pressure(s.c, 256, 1, 128)
	rnd := rand.New(rand.NewPCG(1, 25))
	for range 300 {
		if err := compareBlocks(s, ref); err != nil {
			return err
		}
		off := uint32(rnd.IntN(0x40)) * 4
		if rnd.IntN(2) == 0 {
			off = []uint32{fpga.CamControl, fpga.CamWidth, fpga.CamHeight, fpga.CamFormat, fpga.CamPeriod, fpga.CamExposure}[rnd.IntN(6)]
		}
		v := someValue(rnd, off)
		if off == fpga.CamControl {
			v &^= fpga.CameraRun
		}
		s.Write32(off, v)
		ref.Write32(off, v)
	}
	for off := uint32(0x100); off < 0x1000; off += 0x34 {
		s.Write32(off, rnd.Uint32())
		if v := s.Read32(off); v != 0 {
			return fmt.Errorf("unlisted offset %#05x reads %#x", off, v)
		}
	}
	return s.rules()
}

func TestRegisters(t *testing.T) {
	if err := registers(theDesign(t)); err != nil {
		t.Error(err)
	}
}

// TestFramesAreWholeDescriptors checks that a frame whose trailer would begin within a C2H descriptor of 64 bytes is a
// configuration error.
func TestFramesAreWholeDescriptors(t *testing.T) {
	s := theDesign(t).start(4, true)
	defer s.close()
	s.step(0)
	for width := uint32(64); width <= maxWidth; width += 8 {
		for height := uint32(1); height <= 4; height++ {
			s.Write32(fpga.CamWidth, width)
			s.Write32(fpga.CamHeight, height)
			n := s.Read32(fpga.CamFrameBytes)
			if bad := fpga.CameraStatus(s.Read32(fpga.CamStatus))&fpga.StatusConfigError != 0; bad != (n%fpga.FrameAlign != 0) {
				t.Errorf("%dx%d, %d bytes: configuration error %t", width, height, n, bad)
			}
		}
	}
}

// noStart checks that starting with a configuration error has no effect, as in the model.
func noStart(d *design) error {
	ref, err := modelBlock()
	if err != nil {
		return err
	}
	s := d.start(2, true)
	defer s.close()
	for _, w := range [][2]uint32{
		{fpga.CamExposure, 200_000},
		{fpga.CamExposure, 200_001},
		{fpga.CamExposure, 50_000},
		{fpga.CamPeriod, 1000},
		{fpga.CamControl, fpga.CameraRun},
		{fpga.CamPeriod, 100_000},
		{fpga.CamControl, fpga.CameraRun},
		{fpga.CamControl, fpga.CameraRun | fpga.CameraTriggered},
		{fpga.CamControl, 0},
		{fpga.CamPeriod, 1000},
		{fpga.CamControl, fpga.CameraRun | fpga.CameraTriggered},
		{fpga.CamControl, fpga.CameraRun},
		{fpga.CamControl, 0},
	} {
		s.Write32(w[0], w[1])
		ref.Write32(w[0], w[1])
		for _, off := range []uint32{fpga.CamControl, fpga.CamStatus} {
			if got, want := s.Read32(off), expect(off, ref.Read32(off), ref.Read32); got != want {
				return fmt.Errorf("after %#x to %#05x: register %#05x is %#x, the model's %#x", w[1], w[0], off, got, want)
			}
		}
	}
	return nil
}

func TestNoStart(t *testing.T) {
	if err := noStart(theDesign(t)); err != nil {
		t.Error(err)
	}
}

// TestTime checks that the counter's upper half is latched when the lower one is read, and that it counts nanoseconds.
func TestTime(t *testing.T) {
	s := theDesign(t).start(3, true)
	defer s.close()
	last := s.read64(fpga.CamTimeLow)
	for range 50 {
		before := s.time()
		v := s.read64(fpga.CamTimeLow)
		if v < before || v > s.time() || v <= last {
			t.Fatalf("the counter reads %d ns, then %d, between %d and %d", last, v, before, s.time())
		}
		last = v
		s.cycles(997)
	}
}
