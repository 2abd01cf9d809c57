// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
)

// formats lists all formats of docs/fpga-interface.md.
var formats = []string{
	"RGGB", "GRBG", "GBRG", "BA81", "GREY", "RG10", "BA10", "GB10", "BG10", "Y10 ", "RG12", "BA12", "GB12", "BG12", "Y12 ",
	"RG14", "GR14", "GB14", "BG14", "Y14 ", "RG16", "GR16", "GB16", "BYR2", "Y16 ",
}

// shoot is a series of frames of the test pattern: its settings and its results.
type shoot struct {
	*simulation
	rnd       *rand.Rand
	sensor    *model.Sensor
	width     int
	height    int
	format    fpga.FourCC
	period    uint64
	exposure  uint64
	triggered bool

	from, to uint64 // when the camera was started
	first    uint64 // when frame 0 began; 0: unknown
	next     uint64 // the next frame's number is at least this
	frames   int    // complete frames
	cut      int    // frames ended by command
	forces   int
}

func fourCC(s string) fpga.FourCC { return fpga.NewFourCC([4]byte([]byte(s))) }

// randomShoot chooses a geometry, a format, times and back pressure.
func randomShoot(d *design, seed uint64) (*shoot, error) {
	rnd := rand.New(rand.NewPCG(seed, 10))
	s := &shoot{simulation: d.start(seed, true), rnd: rnd, format: fourCC(formats[rnd.IntN(len(formats))])}
	size := s.format.SampleBytes()
	for s.width = 1; s.width*s.height*size%fpga.FrameAlign != 0 || s.width < model.StampSamples || s.height == 0; {
		s.width, s.height = model.StampSamples+rnd.IntN(maxWidth-model.StampSamples+1), 1+rnd.IntN(maxHeight)
		if rnd.IntN(2) == 0 {
			s.height = 1 + rnd.IntN(4) // small frames are fast, and beats end within lines
		}
	}
	readout := uint64(s.width*s.height) * clockNS
	s.period = max(100_000, readout/2) + rnd.Uint64N(readout)
	s.exposure = rnd.Uint64N(s.period + 1)
	s.triggered = rnd.IntN(4) == 0
	var err error
	s.sensor, err = model.NewSensor(model.SensorConfig{
		Width: s.width, Height: s.height, Format: s.format, Shift: 2,
		Frames: [][]byte{rtltest.Texture(s.width, s.height, s.format)}, Period: time.Duration(s.period), Exposure: time.Duration(s.exposure),
	})
	ready, burst := []uint32{256, 256, 128, 40, 12}[rnd.IntN(5)], []uint32{1, 1, 7, 300}[rnd.IntN(4)]
	s.pressure(s.c, ready, burst, uint32(rnd.IntN(200)))
	return s, err
}

func (s *shoot) startCamera() {
	s.channel(s.c, 1, 1)
	for off, v := range map[uint32]uint64{
		fpga.CamWidth: uint64(s.width), fpga.CamHeight: uint64(s.height), fpga.CamFormat: uint64(s.format),
		fpga.CamPeriod: s.period, fpga.CamExposure: s.exposure, fpga.CamEventEnable: 0x1f,
	} {
		s.Write32(off, uint32(v))
	}
	control := uint32(fpga.CameraRun)
	if s.triggered {
		control |= fpga.CameraTriggered
	}
	s.Write32(fpga.CamControl, 0)
	s.from = s.time()
	s.Write32(fpga.CamControl, control)
	s.to = s.time()
	s.first, s.next = 0, 0
}

// check compares a packet with the model's frame of the same number.
func (s *shoot) check(p []byte) error {
	size := s.sensor.FrameBytes()
	if len(p) != size+fpga.TrailerSize {
		if s.cut++; s.cut <= s.forces && len(p) < size+fpga.TrailerSize {
			return nil
		}
		return fmt.Errorf("a packet has %d bytes, want %d", len(p), size+fpga.TrailerSize)
	}
	s.frames++
	t, err := fpga.ParseTrailer(p[size:])
	if err != nil {
		return err
	}
	if t.Sequence < s.next {
		return fmt.Errorf("frame %d came when %d was the next", t.Sequence, s.next)
	}
	s.next = t.Sequence + 1
	if err := s.times(&t); err != nil {
		return err
	}
	want := make([]byte, size, len(p))
	s.sensor.Frame(t.Sequence, want)
	of := fpga.Trailer{
		Sequence: t.Sequence, Start: t.Start, End: t.Start + s.exposure,
		Width: uint32(s.width), Height: uint32(s.height), Stride: uint32(s.width * s.format.SampleBytes()), Format: s.format,
		Bytes: uint64(size), Valid: uint64(size), PixelCRC: fpga.PixelCRC(want), FirstLine: t.FirstLine, LastLine: t.LastLine,
	}
	if s.triggered {
		of.Flags = fpga.FlagTriggered
	}
	if want, err = of.AppendBinary(want); err != nil {
		return err
	}
	for i := range want {
		if p[i] != want[i] {
			return fmt.Errorf("frame %d: byte %d of %d is %#02x, the model has %#02x", t.Sequence, i, len(want), p[i], want[i])
		}
	}
	return nil
}

// times checks the times in the trailer: frames begin a period apart, and lines take a cycle per sample.
func (s *shoot) times(t *fpga.Trailer) error {
	if !s.triggered {
		start := t.Start - t.Sequence*s.period
		if s.first == 0 {
			s.first = start
		}
		if start != s.first || start < s.from || start > s.to {
			return fmt.Errorf("frame %d began at %d ns; with a period of %d, frame 0 did at %d, and another one says %d; the start was at %d to %d",
				t.Sequence, t.Start, s.period, start, s.first, s.from, s.to)
		}
	}
	first, last := t.End+uint64(s.width)*clockNS, t.End+uint64(s.width+1)*uint64(s.height)*clockNS
	if t.FirstLine < first || t.FirstLine > first+10*clockNS || t.LastLine < last || t.LastLine > last+10*clockNS {
		return fmt.Errorf("frame %d: its lines came at %d and %d ns, want about %d and %d", t.Sequence, t.FirstLine, t.LastLine, first, last)
	}
	return nil
}

// collect checks the packets that have arrived.
func (s *shoot) collect() error {
	for p := s.simulation.next(); p != nil; p = s.simulation.next() {
		if err := s.check(p); err != nil {
			return err
		}
	}
	return nil
}

// disturb does something that a host can do while frames arrive.
func (s *shoot) disturb() error {
	switch s.rnd.IntN(12) {
	case 0: // the channel stops, at the end of its descriptor, and starts again
		s.channel(s.c, 0, 1)
		s.cycles(s.rnd.IntN(400))
		s.channel(s.c, 0, 0)
		s.cycles(1 + s.rnd.IntN(3000))
		s.channel(s.c, 1, 1)
	case 1:
		s.forces++
		s.Write32(fpga.CamCommand, fpga.CommandForceEOP)
	case 2:
		n := s.read64(fpga.CamOpenLow)
		start := uint64(s.Read32(fpga.CamOpenStartLow)) | uint64(s.Read32(fpga.CamOpenStartHigh))<<32
		if begun := start - n*s.period; start != 0 && !s.triggered && (begun < s.from || begun > s.to) {
			return fmt.Errorf("the open frame is %d, begun at %d: with a period of %d that is not of this start", n, start, s.period)
		}
	case 3:
		s.pressure(s.c, uint32(1+s.rnd.IntN(256)), uint32(1+s.rnd.IntN(50)), uint32(s.rnd.IntN(200)))
	}
	if s.triggered {
		s.Write32(fpga.CamCommand, fpga.CommandTrigger)
	}
	return nil
}

// stopCamera stops the camera, receives the rest, and checks the counters.
func (s *shoot) stopCamera() error {
	s.Write32(fpga.CamControl, 0)
	s.channel(s.c, 1, 1)
	s.pressure(s.c, 256, 1, 0)
	s.cycles(2*maxWidth*maxHeight + 3000)
	if err := s.collect(); err != nil {
		return err
	}
	taken, delivered, dropped := s.read64(fpga.CamSequenceLow), s.Read32(fpga.CamDelivered), s.Read32(fpga.CamDropped)
	events := s.Read32(fpga.CamEvents)
	switch {
	case taken != uint64(delivered)+uint64(dropped):
		return fmt.Errorf("%d frames were taken, but %d delivered and %d dropped", taken, delivered, dropped)
	case int(delivered) != s.frames:
		return fmt.Errorf("%d frames came, %d were delivered", s.frames, delivered)
	case s.next > taken:
		return fmt.Errorf("frame %d came of %d that were taken", s.next-1, taken)
	case (events&uint32(fpga.EventDropped) != 0) != (dropped > 0):
		return fmt.Errorf("events are %#x with %d frames dropped", events, dropped)
	case (events&uint32(fpga.EventForcedEOP) != 0) != (s.cut > 0) && s.cut > 0:
		return fmt.Errorf("events are %#x with %d packets ended by command", events, s.cut)
	case (events&uint32(fpga.EventTriggerMissed) != 0) != (s.Read32(fpga.CamTriggerMissed) > 0):
		return fmt.Errorf("events are %#x with %d triggers missed", events, s.Read32(fpga.CamTriggerMissed))
	case s.interrupt(s.c) != min(events, 1):
		return fmt.Errorf("events are %#x, and the interrupt is %d", events, s.interrupt(s.c))
	case s.Read32(fpga.CamPadded) != 0 || s.Read32(fpga.CamLost) != 0:
		return errors.New("frames of the test pattern were padded or lost")
	case s.Read32(fpga.CamStatus) != uint32(fpga.StatusHostReady):
		return fmt.Errorf("at the end STATUS is %#x", s.Read32(fpga.CamStatus))
	}
	return s.rules()
}

// pattern receives frames with one seed, and returns their number.
func pattern(d *design, seed uint64) (int, error) {
	s, err := randomShoot(d, seed)
	defer s.close()
	if err == nil {
		s.startCamera()
		frames := 3 + s.rnd.IntN(12)
		for i := 0; err == nil && i < 40 && s.frames < frames; i++ {
			s.cycles(1 + s.rnd.IntN(int(s.period)/clockNS))
			err = errors.Join(s.disturb(), s.collect())
		}
	}
	if err == nil {
		err = s.stopCamera()
	}
	if err != nil {
		err = fmt.Errorf("seed %d, %dx%d %v, period %d, exposure %d, triggered %t: %w",
			seed, s.width, s.height, s.format, s.period, s.exposure, s.triggered, err)
	}
	return s.frames, err
}

// patterns receives at least the given number of frames.
func patterns(d *design, frames int) (came int, err error) {
	for seed := uint64(1); came < frames; seed++ {
		n, err := pattern(d, seed)
		if err != nil {
			return came, err
		}
		came += n
	}
	return came, nil
}

// TestPatternFrames compares random small frames of the design with the model's, byte for byte.
func TestPatternFrames(t *testing.T) {
	d := theDesign(t)
	frames := 500
	if os.Getenv("TEGRACAST_LONG") != "" {
		frames = 10_000
	}
	begin := time.Now()
	n, err := patterns(d, frames)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d frames in %v", n, time.Since(begin).Round(time.Millisecond))
}

// TestTexture checks that the test picture has no two equal adjacent lines.
func TestTexture(t *testing.T) {
	b := rtltest.Texture(64, 4, fourCC("Y16 "))
	if bytes.Equal(b[:128], b[128:256]) {
		t.Error("two lines are equal")
	}
}
