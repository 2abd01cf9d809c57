// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tegracast/tegracast/fpga"
)

// sensorRun is a camera with a sensor that may deliver too few or too many samples.
type sensorRun struct {
	*simulation
	rnd           *rand.Rand
	width, height int
	format        fpga.FourCC

	taken, padded uint32
	events        fpga.CameraEvents
}

// shape returns the number of samples of each line: those of the frame, or too few or too many.
func (s *sensorRun) shape() []uint32 {
	lines := make([]uint32, s.height)
	for i := range lines {
		lines[i] = uint32(s.width)
	}
	switch s.rnd.IntN(6) {
	case 0: // ends early, in a line
		lines = lines[:1+s.rnd.IntN(len(lines))]
		lines[len(lines)-1] = uint32(1 + s.rnd.IntN(s.width))
	case 1:
		lines = append(lines, uint32(s.width))
	case 2:
		lines[s.rnd.IntN(len(lines))] += uint32(1 + s.rnd.IntN(9))
	case 3:
		lines[s.rnd.IntN(len(lines))] = uint32(1 + s.rnd.IntN(s.width))
	case 4:
		lines = nil
	}
	return lines
}

// want returns the documented result of the sensor's samples: the surplus of each line and of the frame is cut, and what
// is missing is zero.
func (s *sensorRun) want(samples []uint16, lines []uint32) (pixels []byte, valid uint64, flags fpga.TrailerFlags) {
	size := s.format.SampleBytes()
	mask := uint16(1<<s.format.Bits() - 1)
	for y, n := range lines {
		for x := range int(n) {
			v := samples[0] & mask
			samples = samples[1:]
			switch {
			case x >= s.width || y >= s.height:
				flags |= fpga.FlagOverflow
			case size == 1:
				pixels = append(pixels, byte(v))
			default:
				pixels = binary.LittleEndian.AppendUint16(pixels, v)
			}
		}
	}
	valid = uint64(len(pixels))
	if total := s.width * s.height * size; len(pixels) < total {
		flags |= fpga.FlagPadded
		pixels = append(pixels, make([]byte, total-len(pixels))...)
	}
	return pixels, valid, flags
}

// frame triggers a frame and compares it.
func (s *sensorRun) frame() error {
	lines := s.shape()
	samples := []uint16{0}[:0]
	for _, n := range lines {
		for range n {
			samples = append(samples, uint16(s.rnd.Uint32()))
		}
	}
	var none uint16
	first, shape := &none, []uint32{0}
	if len(samples) > 0 {
		first, shape = &samples[0], lines
	}
	s.shot(s.c, first, &shape[0], uint32(len(lines)))
	from := s.time()
	if s.rnd.IntN(2) == 0 {
		s.Write32(fpga.CamCommand, fpga.CommandTrigger)
	} else {
		s.trigger(s.c, 1)
		s.cycles(5)
		s.trigger(s.c, 0)
	}
	var p []byte
	for i := 0; i < 40 && p == nil; i++ {
		s.cycles(1000)
		p = s.simulation.next()
	}
	pixels, valid, flags := s.want(samples, lines)
	t := fpga.Trailer{
		Sequence: uint64(s.taken), Width: uint32(s.width), Height: uint32(s.height), Stride: uint32(s.width * s.format.SampleBytes()),
		Format: s.format, Bytes: uint64(len(pixels)), Valid: valid, Flags: flags | fpga.FlagTriggered, PixelCRC: fpga.PixelCRC(pixels),
	}
	s.taken++
	if flags&fpga.FlagPadded != 0 {
		s.padded++
		s.events |= fpga.EventPadded
	}
	if flags&fpga.FlagOverflow != 0 {
		s.events |= fpga.EventOverflow
	}
	return s.compare(p, pixels, t, from, len(lines))
}

func (s *sensorRun) compare(p, pixels []byte, t fpga.Trailer, from uint64, lines int) error {
	if len(p) != len(pixels)+fpga.TrailerSize {
		return fmt.Errorf("a packet has %d bytes, want %d", len(p), len(pixels)+fpga.TrailerSize)
	}
	got, err := fpga.ParseTrailer(p[len(pixels):])
	if err != nil {
		return err
	}
	if got.Start < from || got.Start > from+5000 || got.End != got.Start+uint64(s.Read32(fpga.CamExposure)) {
		return fmt.Errorf("triggered at %d ns: exposed from %d to %d", from, got.Start, got.End)
	}
	first, last := s.firstLine(s.c), s.lastLine(s.c)
	if lines > 0 && (got.FirstLine < first || got.FirstLine > first+1500) || lines == 0 && got.FirstLine|got.LastLine != 0 {
		return fmt.Errorf("the first line left at %d ns, the trailer says %d", first, got.FirstLine)
	}
	if lines > 0 && lines <= s.height && (got.LastLine < last || got.LastLine > last+1500) {
		return fmt.Errorf("the last line left at %d ns, the trailer says %d", last, got.LastLine)
	}
	t.Start, t.End, t.FirstLine, t.LastLine = got.Start, got.End, got.FirstLine, got.LastLine
	want, err := t.AppendBinary(pixels)
	if err != nil {
		return err
	}
	for i := range want {
		if p[i] != want[i] {
			return fmt.Errorf("frame %d: byte %d is %#02x, want %#02x (trailer %+v, want %+v)", t.Sequence, i, p[i], want[i], got, t)
		}
	}
	return nil
}

func (s *sensorRun) all() error {
	s.channel(s.c, 1, 1)
	for off, v := range map[uint32]uint32{
		fpga.CamWidth: uint32(s.width), fpga.CamHeight: uint32(s.height), fpga.CamFormat: uint32(s.format), fpga.CamExposure: 20_000,
	} {
		s.Write32(off, v)
	}
	s.Write32(fpga.CamControl, fpga.CameraRun|fpga.CameraTriggered)
	for range 6 {
		if err := s.frame(); err != nil {
			return err
		}
	}
	if got := s.Read32(fpga.CamPadded); got != s.padded {
		return fmt.Errorf("PADDED is %d, want %d", got, s.padded)
	}
	if got := fpga.CameraEvents(s.Read32(fpga.CamEvents)); got != s.events {
		return fmt.Errorf("events are %#x, want %#x", got, s.events)
	}
	if s.Read32(fpga.CamDelivered) != s.taken || s.Read32(fpga.CamSequenceLow) != s.taken {
		return fmt.Errorf("%d delivered, want %d", s.Read32(fpga.CamDelivered), s.taken)
	}
	return s.rules()
}

func sensorFrames(d *design, seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 11))
	s := &sensorRun{simulation: d.start(seed, false), rnd: rnd, format: fourCC(formats[rnd.IntN(len(formats))])}
	defer s.close()
	for s.width = 1; s.width*s.height*s.format.SampleBytes()%fpga.FrameAlign != 0 || s.height == 0; {
		s.width, s.height = 1+rnd.IntN(40), 1+rnd.IntN(10)
	}
	s.pressure(s.c, []uint32{256, 128, 30}[rnd.IntN(3)], []uint32{1, 9}[rnd.IntN(2)], uint32(rnd.IntN(100)))
	if err := s.all(); err != nil {
		return fmt.Errorf("seed %d, %dx%d %v: %w", seed, s.width, s.height, s.format, err)
	}
	return nil
}

// TestSensorFrames checks that the samples of a sensor with its own clock arrive unchanged, and that missing samples are
// zero.
func TestSensorFrames(t *testing.T) {
	d := theDesign(t)
	for seed := uint64(1); seed <= 30; seed++ {
		if err := sensorFrames(d, seed); err != nil {
			t.Fatal(err)
		}
	}
}

// stuck stops a sensor within a frame. The packet must stay open until it is ended by command, and the next frame must be
// complete.
func stuck(d *design) error {
	rnd := rand.New(rand.NewPCG(1, 12))
	s := &sensorRun{simulation: d.start(5, false), rnd: rnd, format: fourCC("RG10"), width: 64, height: 8}
	defer s.close()
	if err := s.all(); err != nil {
		return err
	}
	samples, lines := make([]uint16, 64*8), []uint32{64, 64, 64, 64, 64, 64, 64, 64}
	s.shot(s.c, &samples[0], &lines[0], 8)
	s.Write32(fpga.CamCommand, fpga.CommandTrigger)
	s.cycles(500)
	s.halt(s.c, 1)
	s.cycles(3000)
	if st := s.Read32(fpga.CamStatus); st&uint32(fpga.StatusPacketOpen) == 0 {
		return fmt.Errorf("STATUS is %#x: no packet is open", st)
	}
	s.Write32(fpga.CamCommand, fpga.CommandForceEOP)
	s.cycles(300)
	if p := s.simulation.next(); len(p) == 0 || len(p) >= 64*8*2 {
		return fmt.Errorf("the packet that was ended has %d bytes", len(p))
	}
	if st, dropped := s.Read32(fpga.CamStatus), s.Read32(fpga.CamDropped); st&uint32(fpga.StatusPacketOpen) != 0 || dropped != 1 {
		return fmt.Errorf("STATUS is %#x, %d dropped", st, dropped)
	}
	s.halt(s.c, 0)
	s.cycles(3000) // the rest of that frame is dropped
	s.taken++
	return s.frame()
}

func TestStuckSensor(t *testing.T) {
	if err := stuck(theDesign(t)); err != nil {
		t.Error(err)
	}
}
