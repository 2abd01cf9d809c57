// SPDX-License-Identifier: Apache-2.0

package fpga

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Errors of OpenCameraBlock and of Camera's methods. ErrNoCamera and ErrCameraConfig are wrapped with details.
var (
	ErrNoCamera     = errors.New("no camera block")
	ErrCameraConfig = errors.New("camera cannot do this")
	ErrCameraGone   = errors.New("camera registers read all ones: the device has gone")
)

// gone is the value that every register of a missing device reads as.
const gone = math.MaxUint32

// A CameraConfig says how frames are to be taken.
type CameraConfig struct {
	Width, Height int // samples, lines
	Format        FourCC
	Period        time.Duration // from frame to frame; not used if Triggered
	Exposure      time.Duration // 0: unchanged
	Gain          float64       // 1 is unity; 0: unchanged
	Triggered     bool          // each frame is started by a trigger instead of the frame timer
}

// CameraInfo describes a camera block as its registers report it.
type CameraInfo struct {
	Major, Minor        int // version of the register map
	Caps                CameraCaps
	MaxWidth, MaxHeight int           // samples, lines
	Buffers             int           // frames that the FPGA's frame memory can hold
	Align               int           // the number of pixel bytes in a frame must be a multiple of max(Align, FrameAlign)
	MinPeriod           time.Duration // shortest frame period
	Index, Cameras      int           // number of this camera block, counted from 0, and total number of camera blocks
	Channel             int           // C2H channel that the camera feeds
}

// CameraCounters are counters since the camera's latest start. Those of 32 bits wrap around.
type CameraCounters struct {
	Sequence      uint64 // sequence number of the next frame
	Delivered     uint32 // frames sent completely
	Dropped       uint32 // frames dropped at the source
	Padded        uint32 // frames that the FPGA filled up with zeros
	Lost          uint32 // frames sent truncated or without their end
	TriggerMissed uint32 // triggers that arrived during an exposure
}

// Camera controls a camera block in the user BAR (docs/fpga-interface.md). Its methods may be called concurrently.
type Camera struct {
	regs Registers
	info CameraInfo
	mu   sync.Mutex // guards register pairs that latch, and sequences of writes
}

// OpenCameraBlock opens camera block n of the user BAR, after checking its magic number, its major version and the size
// of its trailers. CameraInfo.Cameras is the number of blocks.
func OpenCameraBlock(user Registers, n int) (*Camera, error) {
	regs := block{user, uint32(n) * CameraBlock}
	magic, version := regs.Read32(CamMagic), regs.Read32(CamVersion)
	switch {
	case magic == gone:
		return nil, ErrCameraGone
	case magic != CameraMagic:
		return nil, fmt.Errorf("%w: register %#x reads %#08x, want %#08x: wrong BAR or another design",
			ErrNoCamera, regs.base, magic, uint32(CameraMagic))
	case version>>16 != CameraVersion>>16:
		return nil, fmt.Errorf("%w: version %d.%d, this program knows %d.x: update it or the FPGA",
			ErrNoCamera, version>>16, version&0xffff, CameraVersion>>16)
	}
	if n := regs.Read32(CamTrailerBytes); n != TrailerSize {
		return nil, fmt.Errorf("%w: trailers of %d bytes, want %d", ErrNoCamera, n, TrailerSize)
	}
	geometry := regs.Read32(CamMaxGeometry)
	return &Camera{regs: regs, info: CameraInfo{
		Major: int(version >> 16), Minor: int(version & 0xffff),
		Caps:     CameraCaps(regs.Read32(CamCapabilities)),
		MaxWidth: int(geometry & 0xffff), MaxHeight: int(geometry >> 16),
		Buffers:   int(regs.Read32(CamBuffers)),
		Align:     int(regs.Read32(CamAlign)),
		MinPeriod: time.Duration(regs.Read32(CamMinPeriod)),
		Index:     n,
		Cameras:   max(1, int(regs.Read32(CamCount))),
		Channel:   int(regs.Read32(CamChannel)),
	}}, nil
}

// block is the part of a register window that starts at base.
type block struct {
	Registers
	base uint32
}

func (b block) Read32(off uint32) uint32     { return b.Registers.Read32(b.base + off) }
func (b block) Write32(off uint32, v uint32) { b.Registers.Write32(b.base+off, v) }

// Info returns the properties that the camera block reported when it was opened.
func (c *Camera) Info() CameraInfo { return c.info }

// Configure stops the camera, writes the configuration, and returns an error if a register does not read back as
// written or the camera reports a configuration error. A configuration of an unknown format, outside the limits of the
// registers or not supported according to CameraInfo is refused before anything is written.
func (c *Camera) Configure(cfg CameraConfig) error {
	if err := c.check(cfg); err != nil {
		return err
	}
	if n, align := cfg.Width*cfg.Height*cfg.Format.SampleBytes(), max(FrameAlign, c.info.Align); n%align != 0 {
		return fmt.Errorf("%w: %dx%d %v are %d bytes a frame, which must be a multiple of %d, as each DMA descriptor is (PG195, Length Granularity)",
			ErrCameraConfig, cfg.Width, cfg.Height, cfg.Format, n, align)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	control := uint32(0)
	if cfg.Triggered {
		control = CameraTriggered
	}
	settings := []setting{
		{"CONTROL", CamControl, control},
		{"WIDTH", CamWidth, uint32(cfg.Width)},
		{"HEIGHT", CamHeight, uint32(cfg.Height)},
		{"FORMAT", CamFormat, uint32(cfg.Format)},
	}
	if !cfg.Triggered {
		settings = append(settings, setting{"PERIOD", CamPeriod, uint32(cfg.Period)})
	}
	if err := c.write(append(settings, exposureSettings(cfg)...)); err != nil {
		return err
	}
	return c.statusError()
}

// SetExposure changes exposure and gain while frames are taken; 0 leaves a value unchanged. It returns the sequence
// number of a frame from which on both are certain to be in effect; usually this is the first such frame.
func (c *Camera) SetExposure(exposure time.Duration, gain float64) (from uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	period := time.Duration(c.regs.Read32(CamPeriod))
	if period == gone {
		return 0, ErrCameraGone
	}
	cfg := CameraConfig{
		Width: c.info.MaxWidth, Height: c.info.MaxHeight, Format: FourCC(c.regs.Read32(CamFormat)),
		Period: period, Exposure: exposure, Gain: gain, Triggered: c.regs.Read32(CamControl)&CameraTriggered != 0,
	}
	if err := c.check(cfg); err != nil {
		return 0, err
	}
	if err := c.write(exposureSettings(cfg)); err != nil {
		return 0, err
	}
	low := c.regs.Read32(CamSequenceLow)
	return uint64(c.regs.Read32(CamSequenceHigh))<<32 + uint64(low) + 1, nil
}

// Exposure returns the exposure time and the gain (1 is unity) that the registers hold.
func (c *Camera) Exposure() (exposure time.Duration, gain float64, err error) {
	e, g := c.regs.Read32(CamExposure), c.regs.Read32(CamGain)
	if e == gone {
		return 0, 0, ErrCameraGone
	}
	return time.Duration(e), float64(g) / 256, nil
}

type setting struct {
	name  string
	off   uint32
	value uint32
}

func exposureSettings(cfg CameraConfig) (s []setting) {
	if cfg.Exposure > 0 {
		s = append(s, setting{"EXPOSURE", CamExposure, uint32(cfg.Exposure)})
	}
	if cfg.Gain > 0 {
		s = append(s, setting{"GAIN", CamGain, uint32(math.Round(cfg.Gain * 256))})
	}
	return s
}

// write writes registers, and returns an error if one does not read back as written.
func (c *Camera) write(settings []setting) error {
	for _, s := range settings {
		c.regs.Write32(s.off, s.value)
		switch got := c.regs.Read32(s.off); got {
		case s.value:
		case gone:
			return ErrCameraGone
		default:
			return fmt.Errorf("%w: %s was written %#x and reads back %#x", ErrCameraConfig, s.name, s.value, got)
		}
	}
	return nil
}

// check returns an error if the configuration is outside the limits of the registers or of the camera, has an unknown
// format, or needs a capability that the camera lacks.
func (c *Camera) check(cfg CameraConfig) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrCameraConfig, fmt.Sprintf(format, a...))
	}
	need := CapFreeRunning
	if cfg.Triggered {
		need = CapTriggered
	}
	switch {
	case cfg.Width < 1 || cfg.Width > c.info.MaxWidth || cfg.Height < 1 || cfg.Height > c.info.MaxHeight:
		return bad("%dx%d, the sensor has %dx%d", cfg.Width, cfg.Height, c.info.MaxWidth, c.info.MaxHeight)
	case cfg.Format.Bits() == 0:
		return bad("unknown format %v", cfg.Format)
	case c.info.Caps&need == 0:
		return bad("triggered %t is not among its capabilities %#x", cfg.Triggered, uint32(c.info.Caps))
	case !cfg.Triggered && (cfg.Period < c.info.MinPeriod || cfg.Period >= math.MaxUint32):
		return bad("period %v, want %v to %v", cfg.Period, c.info.MinPeriod, time.Duration(math.MaxUint32-1))
	case cfg.Exposure < 0 || cfg.Exposure >= math.MaxUint32:
		return bad("exposure %v, want up to %v", cfg.Exposure, time.Duration(math.MaxUint32-1))
	case !cfg.Triggered && cfg.Exposure > cfg.Period:
		return bad("exposure %v is longer than the period %v", cfg.Exposure, cfg.Period)
	case cfg.Exposure > 0 && c.info.Caps&CapExposure == 0:
		return bad("exposure is fixed")
	case math.IsNaN(cfg.Gain) || cfg.Gain < 0 || cfg.Gain > 256:
		return bad("gain %g, want up to 256", cfg.Gain)
	case cfg.Gain > 0 && c.info.Caps&CapGain == 0:
		return bad("gain is fixed")
	}
	return nil
}

// FrameBytes returns the number of pixel bytes in a frame, without the trailer, as the camera is configured.
func (c *Camera) FrameBytes() int { return int(c.regs.Read32(CamFrameBytes)) }

// Stride returns the number of bytes from one line to the next.
func (c *Camera) Stride() int { return int(c.regs.Read32(CamStride)) }

// Start clears the counters and begins to take frames, or in triggered mode to accept triggers. The first frame has
// sequence number 0. The DMA channel must be running already.
func (c *Camera) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	control := c.regs.Read32(CamControl)
	if control == gone {
		return ErrCameraGone
	}
	c.regs.Write32(CamControl, control&^CameraRun)
	c.regs.Write32(CamControl, control|CameraRun)
	return c.statusError()
}

// Stop stops taking frames. Frames in the frame memory are still sent.
func (c *Camera) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	control := c.regs.Read32(CamControl)
	if control == gone {
		return ErrCameraGone
	}
	c.regs.Write32(CamControl, control&^CameraRun)
	return nil
}

func (c *Camera) statusError() error {
	switch status := c.regs.Read32(CamStatus); {
	case status == gone:
		return ErrCameraGone
	case CameraStatus(status)&StatusConfigError != 0:
		return fmt.Errorf("%w: it refuses %dx%d %v, period %v, exposure %v", ErrCameraConfig,
			c.regs.Read32(CamWidth), c.regs.Read32(CamHeight), FourCC(c.regs.Read32(CamFormat)),
			time.Duration(c.regs.Read32(CamPeriod)), time.Duration(c.regs.Read32(CamExposure)))
	}
	return nil
}

// Trigger starts one exposure in triggered mode. During an exposure it is only counted as missed.
func (c *Camera) Trigger() { c.regs.Write32(CamCommand, CommandTrigger) }

// ForceEOP ends the open stream packet, so that a DMA channel waiting for the rest of it can stop.
func (c *Camera) ForceEOP() { c.regs.Write32(CamCommand, CommandForceEOP) }

// Timestamp returns the FPGA's timestamp counter in ns.
func (c *Camera) Timestamp() uint64 { return c.pair(CamTimeLow, CamTimeHigh) }

// StepTime adds a step to the timestamp counter, which the counters of all cameras share. It is for block 0 alone, and
// requires CapTimeSet.
func (c *Camera) StepTime(step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.regs.Write32(CamTimeStepLow, uint32(step))
	c.regs.Write32(CamTimeStepHigh, uint32(uint64(step)>>32))
}

// SetTimeRate makes the timestamp counter run faster by so many parts in 10^9, at most 10^6 either way. It is for block 0
// alone, and requires CapTimeSet.
func (c *Camera) SetTimeRate(rate int32) { c.regs.Write32(CamTimeRate, uint32(rate)) }

// TimeRate returns what SetTimeRate has set, or 0 after a reset of the FPGA.
func (c *Camera) TimeRate() int32 { return int32(c.regs.Read32(CamTimeRate)) }

// OpenFrame returns the sequence number of the frame being sent or, between frames, of the previous one, and the start
// of that frame's exposure in ns of the timestamp counter. It requires CapOpenFrame.
func (c *Camera) OpenFrame() (sequence, start uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var words [4]uint64
	for i, at := range []uint32{CamOpenLow, CamOpenHigh, CamOpenStartLow, CamOpenStartHigh} { // reading the first one latches the others
		words[i] = uint64(c.regs.Read32(at))
	}
	return words[1]<<32 | words[0], words[3]<<32 | words[2]
}

// Status returns the status register, which is all ones if the device has gone.
func (c *Camera) Status() CameraStatus { return CameraStatus(c.regs.Read32(CamStatus)) }

// Events returns the events since the previous call and clears them. It returns all ones if the device has gone.
func (c *Camera) Events() CameraEvents {
	events := c.regs.Read32(CamEvents)
	if events != 0 && events != gone {
		c.regs.Write32(CamEvents, events)
	}
	return CameraEvents(events)
}

// EnableEvents selects the events that raise the user interrupt with the camera's number.
func (c *Camera) EnableEvents(events CameraEvents) { c.regs.Write32(CamEventEnable, uint32(events)) }

// Counters returns the counters since the latest start, or ErrCameraGone.
func (c *Camera) Counters() (CameraCounters, error) {
	n := CameraCounters{
		Sequence:      c.pair(CamSequenceLow, CamSequenceHigh),
		Delivered:     c.regs.Read32(CamDelivered),
		Dropped:       c.regs.Read32(CamDropped),
		Padded:        c.regs.Read32(CamPadded),
		Lost:          c.regs.Read32(CamLost),
		TriggerMissed: c.regs.Read32(CamTriggerMissed),
	}
	if c.regs.Read32(CamMagic) == gone {
		return CameraCounters{}, ErrCameraGone
	}
	return n, nil
}

// pair reads a 64-bit counter. Reading its low half latches the high half.
func (c *Camera) pair(low, high uint32) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.regs.Read32(low)
	return uint64(c.regs.Read32(high))<<32 | uint64(l)
}
