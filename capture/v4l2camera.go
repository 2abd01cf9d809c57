// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// V4L2Config configures a V4L2Camera. Zero values of Width, Height, Pixel and Rate mean what the device is set to, or the
// first that it offers.
type V4L2Config struct {
	Device        string // device file, such as /dev/video0, or a link to one
	Name          string // used in the log and the flight recorder; empty: "camera"
	Width, Height int    // pixels
	Pixel         pipeline.PixelFormat
	Rate          pipeline.Rate
	Exposure      time.Duration // 0: as the device is set
	Gain          float64       // 0: as the device is set
	// GainUnit is the value of the device's gain control that means a gain of 1. 0: what NVIDIA's sensors say, or the
	// smallest value that the control takes.
	GainUnit float64
	// Controls sets controls of the device, or of its sensor, by name as v4l2-ctl lists them, such as test_pattern, or by
	// number, such as 0x009a2008, to a number, the name of a menu's item, true or false.
	Controls map[string]string
	// Shift is the number of bits by which samples of 10, 12 or 14 bits stand too high in their words of 16. nil: as
	// NVIDIA's driver stores them on this board, and 0 with other drivers.
	Shift *int
	// Tight makes frames without padding between lines, also if the device has some.
	Tight        bool
	Triggered    bool // frames come when something else triggers them: their absence is no fault
	Slots        int  // number of frame slots; 0: 8
	Memory       cudahost.Allocator
	Flags        cudahost.Flags
	FrameTimeout time.Duration // time without a frame, with free slots, after which the stream is restarted; 0: 1 s; raised to at least 4 frame periods
	GiveUp       time.Duration // how long recovery may be fruitless before Run returns the fault, while the camera is there; 0: 30 s
	OnFrame      func(*pipeline.Frame)
	Recorder     *pipeline.Recorder
	Logger       *slog.Logger // nil: slog.Default()
}

// Errors of V4L2 cameras. Most are returned wrapped, with details.
var (
	ErrV4L2  = errors.New("V4L2 camera")
	ErrHangs = errors.New("the driver does not return from a call")
	ErrHeld  = errors.New("another process uses the camera")
	ErrTwice = errors.New("this process itself uses the camera already: another source has it, perhaps by another name")
)

// A videoDevice is an open device file of a video device, or of a part of one.
type videoDevice interface {
	videodev.Caller
	Mmap(offset int64, length int) ([]byte, error)
	Munmap([]byte) error
	// Wait waits until the device has what is waited for, wake was set, or limit has passed (videodev.File.Wait).
	Wait(what int16, wake *videodev.Wake, limit time.Duration) (videodev.Ready, error)
	Close() error
}

// A videoHost finds device files. videodev.Host implements it.
type videoHost interface {
	Number(path string) (videodev.Number, error)
	File(videodev.Number) (string, error)
	Media(videodev.Number) (string, error)
	Identify(videodev.Number) (videodev.Identity, error)
	Find(videodev.Identity) (string, error)
	Holders(videodev.Number) (list []videodev.Holder, all bool)
}

// A v4l2Machine is the machine on which the camera is.
type v4l2Machine struct {
	videoHost
	open func(path string) (videoDevice, error)
	root fs.FS // identifies the board
}

func thisMachine() v4l2Machine {
	return v4l2Machine{videodev.Host{}, func(path string) (videoDevice, error) { return videodev.Open(path) }, os.DirFS("/")}
}

// A V4L2Camera is a Source of frames of a video device of the kernel (Video4Linux2). The device writes into the slots
// itself if its driver takes their memory (USERPTR); otherwise frames are copied once from the driver's memory (MMAP). Its
// slots and its frame numbering survive faults, and the camera's being unplugged. Everything else belongs to a session,
// which the supervisor replaces.
type V4L2Camera struct {
	cfg       V4L2Config
	host      v4l2Machine
	hangAfter time.Duration
	format    pipeline.Format
	pool      *pipeline.Pool
	wake      *videodev.Wake
	memory    []*cudahost.Buffer

	mu       sync.Mutex // guards what follows
	session  *v4l2Session
	hung     *hungCall
	slots    []slotState
	exposure time.Duration // for future sessions; 0: the device's
	gain     float64
	how      string // how frames come into the slots

	frames  atomic.Uint64 // number of emitted frames
	lost    atomic.Uint64
	damaged atomic.Uint64
	crowded atomic.Uint64 // frames that found no slot
	states  states
	sup     v4l2Supervisor
}

// A slotState is the state of a slot: who may write into it.
type slotState uint8

const (
	slotFree   slotState = iota
	slotQueued           // the device
	slotLeased           // nobody, because frames are read there
)

// NewV4L2Camera opens the device, agrees on a format with it, and allocates the slots. The caller must close the camera.
func NewV4L2Camera(cfg V4L2Config) (*V4L2Camera, error) { return newV4L2Camera(cfg, thisMachine()) }

func newV4L2Camera(cfg V4L2Config, host v4l2Machine) (*V4L2Camera, error) {
	cfg.Slots = cmp.Or(cfg.Slots, 8)
	cfg.Name = cmp.Or(cfg.Name, "camera")
	cfg.GiveUp = cmp.Or(cfg.GiveUp, giveUp)
	cfg.FrameTimeout = cmp.Or(cfg.FrameTimeout, defaultFrameTimeout)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	c := &V4L2Camera{cfg: cfg, host: host, hangAfter: hangAfter, exposure: cfg.Exposure, gain: cfg.Gain}
	c.sup.camera, c.sup.Recovery = c, newRecovery(cfg.GiveUp)
	c.states.name, c.states.recorder, c.states.log = cfg.Name, cfg.Recorder, cfg.Logger
	var err error
	if c.wake, err = videodev.NewWake(); err != nil {
		return nil, err
	}
	if err := c.open(context.Background()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// makeSlots allocates the slots for frames of a transfer.
func (c *V4L2Camera) makeSlots(t *transfer) error {
	c.format = t.format
	c.cfg.Width, c.cfg.Height, c.cfg.Pixel, c.cfg.Rate = c.format.Width, c.format.Height, c.format.Pixel, c.format.Rate // of all sessions
	if c.cfg.Flags&cudahost.WriteCombined != 0 {
		c.format.Memory = pipeline.MemoryWriteCombined
	}
	size := c.format.Size()
	if t.direct || t.inPlace {
		size = t.size()
	}
	buffers, slots, err := newSlots(c.cfg.Memory, c.cfg.Slots, size, c.format, c.cfg.Flags)
	if err != nil {
		return err
	}
	c.memory = buffers
	c.slots = make([]slotState, c.cfg.Slots)
	c.pool = pipeline.NewPool(c.cfg.Name, c.format, slots, c.slotFreed)
	return nil
}

// slotFreed makes the session queue a slot whose last lease was released: at the next frame, or, if the driver has few, at
// once.
func (c *V4L2Camera) slotFreed(slot int) {
	c.mu.Lock()
	c.slots[slot] = slotFree
	waits := c.session != nil && c.session.user && c.session.hungry.Load()
	c.mu.Unlock()
	if waits {
		c.wake.Set()
	}
}

// address returns the address of a slot's memory.
func (c *V4L2Camera) address(slot int) uint64 {
	return uint64(uintptr(unsafe.Pointer(&c.memory[slot].Bytes()[0])))
}

// Format implements pipeline.Source.
func (c *V4L2Camera) Format() pipeline.Format { return c.format }

// How returns how frames come into the slots, such as "USERPTR" or "MMAP, one copy".
func (c *V4L2Camera) How() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.how
}

// Status implements pipeline.Source. The counters count the frames lost before the driver delivered them ("lost"), those
// that the driver has marked as faulty or delivered short ("damaged"), those for which no slot was free ("no_slot"), and
// the times that the source entered each state.
func (c *V4L2Camera) Status() pipeline.SourceStatus {
	r := map[string]uint64{"lost": c.lost.Load(), "damaged": c.damaged.Load(), "no_slot": c.crowded.Load()}
	c.states.count(r)
	return pipeline.SourceStatus{Slots: c.cfg.Slots, Idle: c.State() == Idle, How: c.How(), Counters: r, Refused: c.damaged.Load()}
}

// State returns the camera's current state.
func (c *V4L2Camera) State() State { return State(c.states.current.Load()) }

// Run implements pipeline.Source. It starts the stream, emits frames, recovers from faults, and stops the stream before it
// returns. Emitted frames remain valid until they are released. If the driver does not return from a call, Run returns
// nevertheless.
func (c *V4L2Camera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	return c.sup.run(ctx, emit)
}

// Close closes the device and frees the slots. Run must have returned. If frames are still held, or the driver still holds
// slots because it does not return from a call, Close frees nothing and returns an error that wraps pipeline.ErrLeaked or
// ErrHangs.
func (c *V4L2Camera) Close() error {
	if err := c.stillHung(); err != nil {
		return err
	}
	if c.pool != nil && c.pool.Leased() > 0 {
		return c.pool.Close()
	}
	errs := []error{c.closeSession()}
	if err := c.stillHung(); err != nil {
		return err
	}
	if c.pool != nil {
		errs = append(errs, c.pool.Close())
	}
	c.pool, c.memory = nil, nil
	if c.wake != nil {
		errs = append(errs, c.wake.Close())
	}
	return errors.Join(errs...)
}

// tegraShift returns the number of bits by which NVIDIA's driver stores samples too high: the video inputs of Xavier and
// later fill words of 16 bits from the top (T_R16 of vi5_formats.h).
func tegraShift(driver string, root fs.FS, bits int) int {
	if driver != "tegra-video" || board.Identify(root).Family == board.Other {
		return 0
	}
	return 16 - bits
}
