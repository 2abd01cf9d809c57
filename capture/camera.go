// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/pipeline"
)

// FPGAConfig is an FPGA camera.
type FPGAConfig struct {
	Card          *Card
	Number        int    // of the camera on the card
	Name          string // in the log and the flight recorder; empty: "camera"
	Width, Height int    // pixels
	Pixel         pipeline.PixelFormat
	Rate          pipeline.Rate // not used when Triggered
	Exposure      time.Duration // 0: the sensor's
	Gain          float64       // 0: the sensor's
	Triggered     bool
	Slots         int            // frames of memory; 0: 8
	Flags         cudahost.Flags // of that memory; cudahost.WriteCombined with Bare alone, whose frames the CPU does not read
	FrameTimeout  time.Duration  // how long no frame may come, though slots are free, before the engine is restarted; 0: 1 s; four frame periods at least
	GiveUp        time.Duration  // how long recovery may take before Run returns the fault; 0: 30 s
	// Bare is a stream without camera block and trailers, whose packets are a frame's pixels each: Channel is its C2H
	// channel, Rate what it delivers; Number, Exposure, Gain and Triggered are not used. Frames are counted as they come,
	// so those that the FPGA drops are not seen; where the stream had to be started again, those that were lost are
	// estimated by the time that has passed. A frame's exposure is taken to be the period before it was complete.
	Bare    bool
	Channel int
	// Reset pulses the FPGA's reset line, once in a recovery that nothing else has helped for half of GiveUp, the reset of the
	// Card's function after a quarter included; the hardware has been let go then. It returns false when there is no such line. nil: there never is.
	Reset func(context.Context) (bool, error)
	// SliceLines, if not 0, has frames handed on while they fill, at each so many lines (pipeline.Frame.Fill). The FPGA must say
	// which frame leaves (fpga.CapOpenFrame); without that frames are handed on when they are complete.
	SliceLines int
	// OnFrame, if not nil, is called with each frame when it is complete, before anybody is told so.
	OnFrame  func(*pipeline.Frame)
	Recorder *pipeline.Recorder
	Logger   *slog.Logger // nil: slog.Default()
}

// Errors of a camera. They come wrapped with what, where and what to do.
var (
	ErrHardware  = errors.New("FPGA camera")
	ErrStalled   = errors.New("no frame comes, though slots are free and the sensor should deliver")
	ErrStuck     = errors.New("the device holds frames and returns none")
	ErrReopening = errors.New("the camera is being reopened: its hardware is not available")
)

// An FPGACamera is the Source of frames that an FPGA writes by DMA into pinned slots. Its slots and the numbering of its
// frames outlive faults; what lies between (pins, descriptors, engine) is a session, which its supervisor replaces.
type FPGACamera struct {
	cfg     FPGAConfig
	format  pipeline.Format
	buffers []*cudahost.Buffer
	pool    *pipeline.Pool
	clock   Clock

	mu       sync.Mutex // guards session's pointer against slots that are released meanwhile, and the setting
	session  *session
	exposure time.Duration // of the sessions to come; 0: as the sensor has it
	gain     float64

	frames   atomic.Uint64 // emitted
	last     atomic.Uint64 // sequence number of the last one
	refused  atomic.Uint64 // complete frames whose pixels did not match their CRC
	sup      supervisor
	counters [numStates]atomic.Uint64 // transitions by state
	state    atomic.Int32             // the supervisor's, for others to read
	events   [numEvents]atomic.Uint64 // by tellable

	completed time.Time // when the last frame of a bare stream was complete
}

// NewFPGACamera finds camera and DMA engine, configures the camera, and allocates, pins and describes all slots.
func NewFPGACamera(cfg FPGAConfig) (*FPGACamera, error) {
	cfg.Slots = cmp.Or(cfg.Slots, 8)
	cfg.Name = cmp.Or(cfg.Name, "camera")
	cfg.GiveUp = cmp.Or(cfg.GiveUp, giveUp)
	cfg.FrameTimeout = max(cmp.Or(cfg.FrameTimeout, defaultFrameTimeout), 4*cfg.Rate.Period())
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	c := &FPGACamera{cfg: cfg, exposure: cfg.Exposure, gain: cfg.Gain}
	c.sup.camera, c.sup.Recovery = c, newRecovery(cfg.GiveUp)
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open allocates the slots and makes the first session, so that what cannot be is refused before anything runs.
func (c *FPGACamera) open() error {
	var err error
	if c.cfg.Bare && c.cfg.Rate.Period() <= 0 {
		return fmt.Errorf("%w: a bare stream has no clock: give its rate", ErrHardware)
	}
	if c.format, err = pipeline.NewFormat(c.cfg.Pixel, c.cfg.Width, c.cfg.Height, c.cfg.Rate); err != nil {
		return err
	}
	if c.cfg.Flags&cudahost.WriteCombined != 0 {
		if !c.cfg.Bare {
			return fmt.Errorf("%w: the CPU reads every frame of %s to check the FPGA's CRC: use ordinary memory, or a bare stream",
				pipeline.ErrMemory, c.cfg.Name)
		}
		c.format.Memory = pipeline.MemoryWriteCombined
	}
	var slots []pipeline.Slot
	for range c.cfg.Slots {
		b, err := newBuffer(c.cfg.Card.Memory, c.format.Size(), c.cfg.Flags)
		if err != nil {
			return fmt.Errorf("frame slot: %w", err)
		}
		c.buffers = append(c.buffers, b)
		file, offset := b.File()
		slots = append(slots, pipeline.Slot{Bytes: b.Bytes()[:c.format.Size()], Device: b.DevicePointer(), File: file, Offset: offset, Close: b.Close})
	}
	c.pool = pipeline.NewPool(c.cfg.Name, c.format, slots, c.slotFree)
	s, err := c.newSession(context.Background())
	if err == nil {
		c.setSession(s)
	}
	return err
}

func (c *FPGACamera) setSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

// closeSession lets go of the hardware, if the camera has any.
func (c *FPGACamera) closeSession() (err error) {
	s := c.session
	if s == nil {
		return nil
	}
	c.setSession(nil)
	c.sup.base, err = s.close()
	return err
}

// slotFree gives the slot's descriptor credits back to the engine, if there is one.
func (c *FPGACamera) slotFree(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		c.session.free(slot)
	}
}

// Format implements pipeline.Source.
func (c *FPGACamera) Format() pipeline.Format { return c.format }

// Clock is the mapping of the FPGA's time.
func (c *FPGACamera) Clock() *Clock { return &c.clock }

// Status implements pipeline.Source. The counters are frames refused for their CRC, how often the source got into each state,
// and what the camera's user interrupt has announced. Outputs that hold all slots make the camera idle, too: theirs is the
// fault, and it shows in their books.
func (c *FPGACamera) Status() pipeline.SourceStatus {
	r := map[string]uint64{"crc": c.refused.Load()}
	for s := range numStates {
		if n := c.counters[s].Load(); n > 0 {
			r[s.String()] = n
		}
	}
	for i := range c.events {
		if n := c.events[i].Load(); n > 0 {
			r[tellable[i].report] = n
		}
	}
	return pipeline.SourceStatus{Slots: c.cfg.Slots, Idle: c.State() == Idle, Counters: r}
}

// State is what the camera is doing.
func (c *FPGACamera) State() State { return State(c.state.Load()) }

// Trigger begins one exposure of a triggered camera.
func (c *FPGACamera) Trigger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil && c.session.camera != nil {
		c.session.camera.Trigger()
	}
}

// Exposure is the sensor's exposure and gain as its registers have them. The error wraps ErrReopening, ErrBare or one of fpga's.
func (c *FPGACamera) Exposure() (time.Duration, float64, error) {
	camera, _ := c.registers()
	if camera == nil {
		return 0, 0, c.noRegisters()
	}
	return camera.Exposure()
}

// SetExposure changes exposure and gain while frames come; 0 leaves one as it is. It returns the Sequence of a frame from
// which on both hold, usually the first one. What was set stays when the camera is opened again after a fault. It waits
// for registers, but holds up no frame.
func (c *FPGACamera) SetExposure(exposure time.Duration, gain float64) (from uint64, err error) {
	camera, base := c.registers()
	if camera == nil {
		return 0, c.noRegisters()
	}
	if from, err = camera.SetExposure(exposure, gain); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exposure, c.gain = cmp.Or(exposure, c.exposure), cmp.Or(gain, c.gain)
	return base + from, nil
}

// Adjustable says whether exposure and gain can be changed.
func (c *FPGACamera) Adjustable() (exposure, gain bool) {
	camera, _ := c.registers()
	if camera == nil {
		return false, false
	}
	caps := camera.Info().Caps
	return caps&fpga.CapExposure != 0, caps&fpga.CapGain != 0
}

// registers are those of the camera block, nil while there is none, and what its sequence numbers begin at.
func (c *FPGACamera) registers() (*fpga.Camera, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, 0
	}
	return c.session.camera, c.session.base
}

func (c *FPGACamera) noRegisters() error {
	if c.cfg.Bare {
		return ErrBare
	}
	return ErrReopening
}

// Run implements pipeline.Source: it starts engine and camera, emits every good frame, recovers from faults, and
// stops both before it returns. Frames that were emitted stay valid until they are released.
func (c *FPGACamera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	return c.sup.run(ctx, emit)
}

// Close unpins and frees the slots. Run must have returned. While frames are held it frees nothing and returns an
// error that wraps pipeline.ErrLeaked.
func (c *FPGACamera) Close() error {
	if c.pool != nil && c.pool.Leased() > 0 {
		return c.pool.Close()
	}
	errs := []error{c.closeSession()}
	if c.pool != nil {
		errs = append(errs, c.pool.Close())
	} else {
		for _, b := range c.buffers {
			errs = append(errs, b.Close())
		}
	}
	c.buffers = nil
	return errors.Join(errs...)
}
