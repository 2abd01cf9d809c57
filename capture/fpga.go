package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"tegracast/cudahost"
	"tegracast/fpga"
	"tegracast/fpga/xdma"
	"tegracast/pipeline"
	"tegracast/tegra"
)

// Hardware is what an FPGA camera stands on: the device's registers and interrupts, who pins memory for it, and who
// makes that memory.
type Hardware struct {
	BARs       []fpga.BAR
	Interrupts fpga.Interrupts
	Pinner     tegra.Pinner
	Memory     cudahost.Allocator
}

// FPGAConfig is an FPGA camera.
type FPGAConfig struct {
	Hardware
	Channel       int // C2H stream channel
	Width, Height int // pixels
	Pixel         pipeline.PixelFormat
	Rate          pipeline.Rate // not used when Triggered
	Exposure      time.Duration // 0: the sensor's
	Gain          float64       // 0: the sensor's
	Triggered     bool
	Slots         int            // frames of memory; 0: 8
	Flags         cudahost.Flags // of that memory
	Logger        *slog.Logger   // nil: slog.Default()
}

// ErrHardware is wrapped by errors about what the FPGA is or answers.
var ErrHardware = errors.New("FPGA camera")

// An FPGACamera is the Source of frames that an FPGA writes by DMA into pinned slots.
type FPGACamera struct {
	cfg      FPGAConfig
	format   pipeline.Format
	camera   *fpga.Camera
	ring     *xdma.Ring
	surfaces []*Surface
	pool     *pipeline.Pool
	clock    Clock
	revoked  chan struct{}
	refused  atomic.Uint64 // complete frames whose pixels did not match their CRC
	freeErr  atomic.Pointer[error]
}

// NewFPGACamera finds camera and DMA engine, configures the camera, and allocates, pins and describes all slots.
func NewFPGACamera(cfg FPGAConfig) (*FPGACamera, error) {
	if cfg.Slots == 0 {
		cfg.Slots = 8
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	c := &FPGACamera{cfg: cfg, revoked: make(chan struct{}, 1)}
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *FPGACamera) open() error {
	var err error
	if c.format, err = pipeline.NewFormat(c.cfg.Pixel, c.cfg.Width, c.cfg.Height, c.cfg.Rate); err != nil {
		return err
	}
	if c.cfg.Flags&cudahost.WriteCombined != 0 {
		c.format.Memory = pipeline.MemoryWriteCombined
	}
	if err := c.openCamera(); err != nil {
		return err
	}
	device, err := xdma.Open(xdma.Config{BARs: c.cfg.BARs, Interrupts: c.cfg.Interrupts, Alloc: CoherentMemory(c.cfg.Pinner)})
	if err != nil {
		return err
	}
	var slots []pipeline.Slot
	ring := xdma.RingConfig{Channel: c.cfg.Channel, Trailer: fpga.TrailerSize}
	for range c.cfg.Slots {
		s, err := NewSurface(c.cfg.Memory, c.cfg.Pinner, c.format.Size(), c.cfg.Flags, tegra.FromDevice)
		if err != nil {
			return fmt.Errorf("frame slot: %w", err)
		}
		s.Pin.OnFree(c.pinEnded)
		c.surfaces = append(c.surfaces, s)
		slots = append(slots, pipeline.Slot{Bytes: s.Memory.Bytes, Device: s.Buffer.DevicePointer()})
		ring.Slots = append(ring.Slots, s.Memory)
	}
	if c.ring, err = device.NewRing(ring); err != nil {
		return err
	}
	c.pool = pipeline.NewPool("camera", c.format, slots, c.slotFree)
	return nil
}

// openCamera finds the camera block in one of the BARs and configures it.
func (c *FPGACamera) openCamera() error {
	err := fmt.Errorf("%w: the device has no BAR", ErrHardware)
	for _, bar := range c.cfg.BARs {
		if c.camera, err = fpga.OpenCamera(bar.Registers); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	want := fpga.CameraConfig{
		Width: c.cfg.Width, Height: c.cfg.Height, Format: fpga.FourCC(c.cfg.Pixel),
		Exposure: c.cfg.Exposure, Gain: c.cfg.Gain, Triggered: c.cfg.Triggered,
	}
	if c.cfg.Rate.Num > 0 {
		want.Period = c.cfg.Rate.Period()
	}
	if err := c.camera.Configure(want); err != nil {
		return err
	}
	if n, s := c.camera.FrameBytes(), c.camera.Stride(); n != c.format.Size() || s != c.format.Stride {
		return fmt.Errorf("%w: it sends %d bytes a frame in lines of %d, %s has %d in lines of %d",
			ErrHardware, n, s, c.format, c.format.Size(), c.format.Stride)
	}
	return nil
}

// pinEnded runs when a slot's memory has been taken from the device.
func (c *FPGACamera) pinEnded(why tegra.Reason) {
	if why == tegra.ReasonUnpin {
		return
	}
	select {
	case c.revoked <- struct{}{}:
	default:
	}
}

// slotFree gives the slot's descriptor credits back to the engine.
func (c *FPGACamera) slotFree(slot int) {
	if err := c.ring.Free(slot); err != nil {
		failed := err // a variable of its own, so that only a failure allocates
		c.freeErr.CompareAndSwap(nil, &failed)
	}
}

// Format implements pipeline.Source.
func (c *FPGACamera) Format() pipeline.Format { return c.format }

// Slots implements pipeline.Slotted: one slot always waits for its successor (see xdma.Ring).
func (c *FPGACamera) Slots() int { return c.cfg.Slots - 1 }

// Report implements pipeline.Reporter.
func (c *FPGACamera) Report() map[string]uint64 {
	r := map[string]uint64{"crc": c.refused.Load()}
	if n, err := c.camera.Counters(); err == nil {
		r["fpga"] = uint64(n.Dropped)
	}
	return r
}

// Trigger begins one exposure of a triggered camera.
func (c *FPGACamera) Trigger() { c.camera.Trigger() }

// Run implements pipeline.Source: it starts engine and camera, emits every complete frame, and stops both before it
// returns. Frames that were emitted stay valid until they are released; their slots just do not go back.
func (c *FPGACamera) Run(ctx context.Context, emit func(*pipeline.Frame)) (err error) {
	if err := c.ring.Start(c.freeSlots()); err != nil {
		return err
	}
	c.freeSlots() // those that were released in between
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.camera.Start(); err != nil {
		return err
	}
	c.clock.Update(c.camera.Timestamp)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.revoked:
			cancel(tegra.ErrRevoked)
		case <-ctx.Done():
		}
	}()
	for {
		done, err := c.ring.Next(ctx)
		if freeErr := c.freeErr.Load(); err == nil && freeErr != nil {
			err = *freeErr
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		if err := c.take(done, emit); err != nil {
			return err
		}
	}
}

// freeSlots lists the slots that nobody holds, and gives each to the ring if it runs and does not have it yet.
func (c *FPGACamera) freeSlots() (free []int) {
	for i := range c.cfg.Slots {
		if f, err := c.pool.Lease(i); err == nil {
			free = append(free, i)
			f.Release()
		}
	}
	return free
}

// take checks a completed slot and emits it. The completion was observed on this goroutine; the consumers get the
// frame through a lock, which is the synchronising operation that GPUDirect RDMA 12.9 §11.7 asks for between the
// observation and a kernel's launch.
func (c *FPGACamera) take(done xdma.Completion, emit func(*pipeline.Frame)) error {
	now := time.Now()
	trailer, err := fpga.ParseTrailer(done.Trailer)
	if err != nil {
		return fmt.Errorf("slot %d: %w", done.Slot, err)
	}
	if trailer.Bytes != uint64(c.format.Size()) || trailer.Format != fpga.FourCC(c.format.Pixel) {
		return fmt.Errorf("%w: frame %d has %d bytes of %v, and %s was configured",
			ErrHardware, trailer.Sequence, trailer.Bytes, trailer.Format, c.format)
	}
	f, err := c.pool.Lease(done.Slot)
	if err != nil {
		return err
	}
	if c.format.Memory == pipeline.MemoryHost && fpga.PixelCRC(f.Bytes) != trailer.PixelCRC {
		// The graph sees the gap in the sequence.
		c.refused.Add(1)
		c.cfg.Logger.Error("frame refused: its pixels do not match the FPGA's CRC", "frame", trailer.Sequence, "slot", done.Slot)
		f.Release()
		return nil
	}
	f.Sequence = trailer.Sequence
	f.Times.ExposureStart, f.Times.Uncertainty = c.clock.At(trailer.Start)
	f.Times.ExposureEnd, _ = c.clock.At(trailer.End)
	f.Times.Captured = now
	if trailer.Flags&fpga.FlagPadded != 0 {
		f.Flags |= pipeline.FlagPadded
	}
	emit(f)
	return nil
}

// stop stops the camera, then the engine.
func (c *FPGACamera) stop() error {
	return errors.Join(c.camera.Stop(), c.ring.Stop())
}

// Close unpins and frees the slots. Run must have returned. While frames are held it frees nothing and returns
// an error that wraps pipeline.ErrLeaked.
func (c *FPGACamera) Close() error {
	if c.pool != nil {
		if err := c.pool.Close(); err != nil {
			return err
		}
	}
	var errs []error
	if c.ring != nil {
		errs = append(errs, c.ring.Close())
	}
	for _, s := range c.surfaces {
		errs = append(errs, s.Close())
	}
	c.ring, c.surfaces = nil, nil
	return errors.Join(errs...)
}
