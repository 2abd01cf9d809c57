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

// FPGAConfig configures an FPGACamera.
type FPGAConfig struct {
	Card          *Card
	Number        int    // number of the camera on the card
	Name          string // used in the log and the flight recorder; empty: "camera"
	Width, Height int    // pixels
	Pixel         pipeline.PixelFormat
	Rate          pipeline.Rate // the sensor's, unless Triggered; the watchdog's intervals depend on it in any case
	Exposure      time.Duration // 0: the sensor's default
	Gain          float64       // 0: the sensor's default
	Triggered     bool
	Slots         int            // number of frame slots; 0: 8
	Flags         cudahost.Flags // of the slots' memory; cudahost.WriteCombined only with Bare, because otherwise the CPU checks each frame's CRC
	FrameTimeout  time.Duration  // time without a frame, with free slots, after which the engine is restarted; 0: 1 s; raised to at least 4 frame periods
	GiveUp        time.Duration  // how long recovery may be fruitless before Run returns the fault; 0: 30 s
	// Bare selects a stream without a camera block and trailers, each of whose packets contains the pixels of one
	// frame. Channel is its C2H channel and Rate its frame rate; Number, Exposure, Gain and Triggered are not used.
	// Frames are counted as they arrive, so frames dropped by the FPGA are not noticed. If the stream has to be
	// restarted, the number of lost frames is estimated from the time that has passed. A frame's exposure is assumed to
	// be the frame period before it was complete or, if it was handed on early, the time in which its lines arrived.
	Bare    bool
	Channel int
	// Reset pulses the FPGA's reset line. It is called at most once in a recovery, after the hardware was released,
	// when recovery has been fruitless for half of GiveUp; a reset of the Card's function has then already been tried,
	// after a quarter of GiveUp. Reset returns false if there is no reset line. It may be nil.
	Reset func(context.Context) (bool, error)
	// SliceLines, if not 0, makes the camera hand on frames while they are filling, in steps of this many lines
	// (pipeline.Frame.Fill). Unless Bare, this requires an FPGA that reports the frame being transferred
	// (fpga.CapOpenFrame); with other FPGAs, frames are handed on when they are complete.
	SliceLines int
	// OnFrame, if not nil, is called with each complete frame, before any consumer learns that it is complete.
	OnFrame  func(*pipeline.Frame)
	Recorder *pipeline.Recorder
	Logger   *slog.Logger // nil: slog.Default()
}

// Errors of cameras and outputs. Most are returned wrapped, with details.
var (
	ErrHardware  = errors.New("FPGA camera")
	ErrStalled   = errors.New("no frame arrives, although slots are free and the sensor should deliver")
	ErrStuck     = errors.New("the device holds frames and returns none")
	ErrReopening = errors.New("the camera is being reopened: its hardware is not available")
	ErrStopped   = errors.New("the camera does not run")
)

// An FPGACamera is a Source of frames that an FPGA writes by DMA into pinned slots. Its slots and its frame numbering
// survive faults. Everything else (pins, descriptors, engine) belongs to a session, which the supervisor replaces.
type FPGACamera struct {
	cfg     FPGAConfig
	format  pipeline.Format
	buffers []*cudahost.Buffer
	pool    *pipeline.Pool

	mu       sync.Mutex // guards the session pointer against concurrent releases of slots, and the exposure setting
	session  *session
	exposure time.Duration // for future sessions; 0: the sensor's default
	gain     float64

	frames  atomic.Uint64 // number of emitted frames
	refused atomic.Uint64 // complete frames refused because of their CRC or trailer
	sup     supervisor
	states  states
	events  [numEvents]atomic.Uint64 // number of events of each kind, indexed like tellable

	completed time.Time // when the latest frame of a bare stream was completed or cut short, to estimate losses
}

// NewFPGACamera finds the camera and the DMA engine, configures the camera, and allocates, pins and describes all
// slots. The caller must close the camera.
func NewFPGACamera(cfg FPGAConfig) (*FPGACamera, error) {
	cfg.Slots = cmp.Or(cfg.Slots, 8)
	cfg.Name = cmp.Or(cfg.Name, "camera")
	cfg.GiveUp = cmp.Or(cfg.GiveUp, giveUp)
	cfg.FrameTimeout = max(cmp.Or(cfg.FrameTimeout, defaultFrameTimeout), 4*cfg.Rate.Period())
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	c := &FPGACamera{cfg: cfg, exposure: cfg.Exposure, gain: cfg.Gain}
	c.sup.camera, c.sup.Recovery = c, newRecovery(cfg.GiveUp)
	c.states.name, c.states.recorder, c.states.log = cfg.Name, cfg.Recorder, cfg.Logger
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open allocates the slots and opens the first session, so that an impossible configuration is refused before anything
// runs.
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
	if c.buffers, slots, err = newSlots(c.cfg.Card.Memory, c.cfg.Slots, c.format.Size(), c.format, c.cfg.Flags); err != nil {
		return err
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

// closeSession closes the session, if there is one, which releases the hardware.
func (c *FPGACamera) closeSession() (err error) {
	s := c.session
	if s == nil {
		return nil
	}
	c.setSession(nil)
	c.sup.base, err = s.close()
	return err
}

// slotFree gives a slot to the session's ring, if there is a session.
func (c *FPGACamera) slotFree(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		c.session.free(slot)
	}
}

// Format implements pipeline.Source.
func (c *FPGACamera) Format() pipeline.Format { return c.format }

// Clock returns the clock that maps the FPGA's time to this machine's time.
func (c *FPGACamera) Clock() *Clock { return &c.cfg.Card.clock }

// ClockReport returns the state of the clock that the FPGA's time follows, or nil if it follows none, or stamps no frames.
func (c *FPGACamera) ClockReport() *pipeline.ClockReport {
	if c.cfg.Bare {
		return nil
	}
	return c.cfg.Card.Report(time.Now())
}

// Status implements pipeline.Source. The counters count the frames refused because of their CRC or trailer, the times
// that the source entered each state, and the events announced by the camera's user interrupt. A camera counts as idle
// if it waits for a trigger, and also if outputs hold all slots: then the outputs are at fault, and their statistics
// show it.
func (c *FPGACamera) Status() pipeline.SourceStatus {
	r := map[string]uint64{"crc": c.refused.Load()}
	c.states.count(r)
	for i := range c.events {
		if n := c.events[i].Load(); n > 0 {
			r[tellable[i].report] = n
		}
	}
	return pipeline.SourceStatus{Slots: c.cfg.Slots, Idle: c.State() == Idle, Counters: r, Refused: c.refused.Load()}
}

// State returns the camera's current state.
func (c *FPGACamera) State() State { return State(c.states.current.Load()) }

// Exposure returns the sensor's exposure and gain as read from its registers. The error wraps ErrReopening, ErrBare or
// an error of package fpga.
func (c *FPGACamera) Exposure() (time.Duration, float64, error) {
	camera, _ := c.registers()
	if camera == nil {
		return 0, 0, c.noRegisters()
	}
	return camera.Exposure()
}

// SetExposure changes exposure and gain while the camera is running; 0 keeps the current value. It returns the Sequence
// of a frame from which on both apply, usually the first such frame. The values are kept when the camera is reopened
// after a fault. SetExposure waits for registers, but delays no frame. The error wraps ErrReopening, ErrBare or an
// error of package fpga.
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

// Adjustable reports whether exposure and gain can be changed. Neither can be changed while the camera is being
// reopened, or with a bare stream.
func (c *FPGACamera) Adjustable() (exposure, gain bool) {
	camera, _ := c.registers()
	if camera == nil {
		return false, false
	}
	caps := camera.Info().Caps
	return caps&fpga.CapExposure != 0, caps&fpga.CapGain != 0
}

// registers returns the registers of the camera block, or nil for a bare stream or while there is no session, and the
// offset of its sequence numbers.
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

// Trigger starts an exposure of a triggered camera, at once. During an exposure the FPGA only counts it. The error is
// ErrStopped before Run has started the camera, ErrReopening or ErrBare.
func (c *FPGACamera) Trigger() error {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	switch {
	case s == nil || s.camera == nil:
		return c.noRegisters()
	case !s.started.Load():
		return ErrStopped
	}
	s.camera.Trigger()
	return nil
}

// Run implements pipeline.Source. It starts the engine and the camera, emits frames, recovers from faults, and stops
// both before it returns. Emitted frames remain valid until they are released.
func (c *FPGACamera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	return c.sup.run(ctx, emit)
}

// Close unpins and frees the slots. Run must have returned. If frames are still held, Close frees nothing and returns
// an error that wraps pipeline.ErrLeaked.
func (c *FPGACamera) Close() error {
	if c.pool != nil && c.pool.Leased() > 0 {
		return c.pool.Close()
	}
	errs := []error{c.closeSession()}
	if c.pool != nil {
		errs = append(errs, c.pool.Close())
	}
	c.buffers = nil
	return errors.Join(errs...)
}
