// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// StampSamples is the number of samples at the start of a frame's first line that contain its sequence number.
const StampSamples = 64

// ErrStamp means that a frame's first samples are not a stamp.
var ErrStamp = errors.New("no sequence stamp")

// SensorConfig configures a sensor that replays raw frames.
type SensorConfig struct {
	Width, Height int // samples, lines; at least 64 x 1
	Format        fpga.FourCC

	// Frames are replayed in turn. Each has Width * Height samples in the layout of host memory: one byte each up to 8
	// bits, little-endian 16-bit words above.
	Frames [][]byte

	// Clip, if not 0, is the value from which on samples of Frames, of more than 8 bits, are clipped. In less light they have
	// at least the value Clip, and as much as a grey surface gives beside the other samples of the same two lines and
	// columns, before they are scaled. Grey has the proportions of red, green and blue of such a surface.
	Clip int
	Grey [3]float64

	// Shift moves the picture to the left by that many samples from frame to frame; what leaves a line on the left
	// reappears on the right. It must be even, to keep the Bayer order, and not negative.
	Shift int

	// Period and Exposure are the reset values of the camera's registers; 0: 30 frames a second, and 10 ms or half the
	// period, whichever is shorter. Frames are assumed to have been taken with that exposure and a gain of 1.
	Period, Exposure time.Duration

	// Jitter is the bound of the delay of a frame's start after the frame timer or a trigger, at most Period less
	// Exposure; 0: no delay. Each frame's delay is less than Jitter and is derived from JitterSeed. With the frame
	// timer it is also less than the current period less the current exposure.
	Jitter     time.Duration
	JitterSeed uint64

	// Readout is the time in which the lines of a frame are read out after its exposure, at a uniform rate; at most the
	// period. The FPGA sends a line once it has arrived. 0: all at once.
	Readout time.Duration

	// Bare makes the camera a stream without a camera block, as in a stock design: it runs from reset on, a packet
	// contains a frame's pixels only, and the state of the channel is ignored. If the channel stops, a packet that was
	// partly sent continues at the next start.
	Bare bool
}

// Crop returns the configuration with every frame cut to its lower right corner of width x height samples, which must be
// inside the frame. If either is odd, the colour order is kept by leaving out the last line or column.
func (c SensorConfig) Crop(width, height int) (SensorConfig, error) {
	if width < 1 || height < 1 || width > c.Width || height > c.Height {
		return c, fmt.Errorf("sensor: %dx%d cannot be cut out of frames of %dx%d", width, height, c.Width, c.Height)
	}
	size := c.Format.SampleBytes()
	left, top := (c.Width-width)&^1, (c.Height-height)&^1
	frames := make([][]byte, len(c.Frames))
	for i, f := range c.Frames {
		frames[i] = make([]byte, 0, width*height*size)
		for y := range height {
			frames[i] = append(frames[i], f[((top+y)*c.Width+left)*size:][:width*size]...)
		}
	}
	c.Frames, c.Width, c.Height = frames, width, height
	return c, nil
}

// Sensor makes the frames of a SensorConfig. For the same n, Frame always writes the same bytes.
type Sensor struct {
	cfg   SensorConfig
	bytes int // of a sample
	line  int // bytes
	// light on the scene: amounts of red, green and blue relative to that in the replayed frames; nil: as in the frames
	light atomic.Pointer[[3]float64]
}

// NewSensor returns a sensor after checking the configuration.
func NewSensor(cfg SensorConfig) (*Sensor, error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("sensor %dx%d %v: %s", cfg.Width, cfg.Height, cfg.Format, fmt.Sprintf(format, a...))
	}
	if cfg.Period == 0 {
		cfg.Period = time.Second / 30
	}
	if cfg.Exposure == 0 {
		cfg.Exposure = min(10*time.Millisecond, cfg.Period/2)
	}
	size := cfg.Format.SampleBytes()
	switch {
	case size == 0:
		return nil, bad("unknown format")
	case cfg.Width < StampSamples || cfg.Width > fpga.MaxDimension || cfg.Height < 1 || cfg.Height > fpga.MaxDimension:
		return nil, bad("want %dx1 to %dx%d", StampSamples, fpga.MaxDimension, fpga.MaxDimension)
	case cfg.Width*cfg.Height*size%BeatBytes != 0:
		return nil, bad("a frame of %d bytes is not a multiple of the stream's %d", cfg.Width*cfg.Height*size, BeatBytes)
	case !cfg.Bare && cfg.Width*cfg.Height*size%fpga.FrameAlign != 0:
		return nil, bad("a frame of %d bytes is not a multiple of %d, and its trailer would begin in the middle of a descriptor",
			cfg.Width*cfg.Height*size, fpga.FrameAlign)
	case len(cfg.Frames) == 0:
		return nil, bad("no frames to replay")
	case cfg.Shift < 0 || cfg.Shift%2 != 0:
		return nil, bad("shift %d must be even and not negative, or the Bayer order changes", cfg.Shift)
	case cfg.Period < minPeriod || cfg.Period >= 1<<32:
		return nil, bad("period %v, want %v to 4.29 s", cfg.Period, minPeriod)
	case cfg.Jitter < 0 || cfg.Jitter > cfg.Period-cfg.Exposure:
		return nil, bad("jitter %v, want up to %v: the period less the exposure", cfg.Jitter, cfg.Period-cfg.Exposure)
	case cfg.Readout < 0 || cfg.Readout > cfg.Period:
		return nil, bad("readout %v, want up to the period %v", cfg.Readout, cfg.Period)
	case cfg.Exposure < 0 || cfg.Exposure > cfg.Period:
		return nil, bad("exposure %v, want up to the period %v", cfg.Exposure, cfg.Period)
	}
	s := &Sensor{cfg: cfg, bytes: size, line: cfg.Width * size}
	for i, f := range cfg.Frames {
		if len(f) != s.FrameBytes() {
			return nil, bad("frame %d has %d bytes, want %d", i, len(f), s.FrameBytes())
		}
	}
	return s, nil
}

// Config returns the configuration with the default times filled in.
func (s *Sensor) Config() SensorConfig { return s.cfg }

// FrameBytes returns the length of a frame in bytes, without the trailer.
func (s *Sensor) FrameBytes() int { return s.line * s.cfg.Height }

// jitter returns the delay of frame n, which is less than most, or 0 if most is not positive.
func (s *Sensor) jitter(n uint64, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(mix(mix(s.cfg.JitterSeed)^mix(n)) % uint64(most))
}

// Frame writes frame n to dst, which must have at least FrameBytes bytes: element n modulo len(Frames) of the
// configured Frames, shifted, with the stamp of n. The settings of the camera and SetLight have no effect on it.
func (s *Sensor) Frame(n uint64, dst []byte) {
	s.readFrame(n, s.cfg.Frames[s.replayed(n)], 0, dst[:s.FrameBytes()])
}

// replayed returns which element of the configured Frames frame n is made of.
func (s *Sensor) replayed(n uint64) int { return int(n % uint64(len(s.cfg.Frames))) }

// readFrame writes the bytes of frame n from offset from on to dst: those of pixels, shifted, with the stamp of n.
func (s *Sensor) readFrame(n uint64, pixels []byte, from int, dst []byte) {
	width := uint64(s.cfg.Width)
	shift := int(n%width*(uint64(s.cfg.Shift)%width)%width) * s.bytes
	for done := 0; done < len(dst); {
		column := (from + done) % s.line
		line := pixels[from+done-column:][:s.line]
		if left := s.line - shift; column < left {
			done += copy(dst[done:], line[shift+column:])
		} else {
			done += copy(dst[done:], line[column-left:shift])
		}
	}
	var stamp [2 * StampSamples]byte
	if end := StampSamples * s.bytes; from < end {
		writeStamp(stamp[:], s.cfg.Format, n)
		copy(dst, stamp[from:end])
	}
}

// writeStamp writes n into the first StampSamples samples, bit 0 first: a one is the format's maximum sample value, a
// zero is 0.
func writeStamp(dst []byte, f fpga.FourCC, n uint64) {
	full := uint16(1<<f.Bits() - 1)
	for i := range StampSamples {
		v := full * uint16(n>>i&1)
		if f.SampleBytes() == 1 {
			dst[i] = byte(v)
		} else {
			binary.LittleEndian.PutUint16(dst[2*i:], v)
		}
	}
}

// ReadStamp returns the sequence number in a frame's first samples. Its errors wrap ErrStamp.
func ReadStamp(frame []byte, f fpga.FourCC) (uint64, error) {
	size := f.SampleBytes()
	if size == 0 || len(frame) < StampSamples*size {
		return 0, fmt.Errorf("%w: %d bytes of format %v", ErrStamp, len(frame), f)
	}
	var n uint64
	for i := range StampSamples {
		v := uint16(frame[i*size])
		if size == 2 {
			v = binary.LittleEndian.Uint16(frame[2*i:])
		}
		switch v {
		case 0:
		case uint16(1<<f.Bits() - 1):
			n |= 1 << i
		default:
			return 0, fmt.Errorf("%w: sample %d is %d, want 0 or %d", ErrStamp, i, v, 1<<f.Bits()-1)
		}
	}
	return n, nil
}
