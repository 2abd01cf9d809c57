// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/tegra"
)

// A session is one period during which a camera holds the hardware: the camera block, the pins of all slots and the
// ring of their descriptors.
type session struct {
	owner   *FPGACamera
	camera  *fpga.Camera // nil for a bare stream
	device  *xdma.Device
	told    fpga.CameraEvents // kinds of events already logged
	ring    *xdma.Ring
	pins    []*tegra.Pin
	revoked chan struct{} // closed when a pin is revoked
	why     tegra.Reason  // reason of the revocation; valid after revoked is closed
	once    sync.Once     // guards closing revoked
	failed  chan error    // error from giving credits to the engine
	started atomic.Bool   // the camera is capturing
	base    uint64        // added to the FPGA's sequence numbers
	next    uint64        // one more than the FPGA's sequence number of the latest frame seen
	resumed bool          // a bare stream was restarted, and no frame has come since
	taken   uint64        // number of frames begun by the sensor, as last seen by the watchdog
	exposed uint64        // start of the latest exposure seen, by the FPGA's timestamp counter
	filling fillingFrame
}

func (c *FPGACamera) newSession(ctx context.Context) (*session, error) {
	s := &session{owner: c, base: c.sup.base, revoked: make(chan struct{}), failed: make(chan error, 1)}
	if err := s.open(ctx); err != nil {
		_, e := s.close()
		return nil, errors.Join(err, e)
	}
	return s, nil
}

func (s *session) open(ctx context.Context) error {
	cfg := &s.owner.cfg
	var ring xdma.RingConfig
	if !cfg.Bare {
		if err := s.openCamera(); err != nil {
			return err
		}
		ring.Trailer, ring.Unblock = fpga.TrailerSize, s.camera.ForceEOP
	}
	ring.Channel = s.channel()
	var err error
	if s.device, err = cfg.Card.channel(ctx, s, fpga.C2H, ring.Channel); err != nil {
		return err
	}
	ring.Frame = s.owner.format.Size()
	for i, b := range s.owner.buffers { // buffers consist of whole pages
		pin, memory, err := pinBuffer(cfg.Card.Memory, cfg.Card.Pinner, b, descriptors(ring.Frame), tegra.FromDevice)
		if err != nil {
			return fmt.Errorf("frame slot %d: %w", i, err)
		}
		cfg.Card.pinned.add(pin)
		pin.OnFree(s.pinEnded)
		s.pins = append(s.pins, pin)
		ring.Slots = append(ring.Slots, memory)
	}
	ring.Slice = s.slice()
	s.ring, err = s.device.NewRing(ring)
	return err
}

// descriptors rounds a number of bytes up to the size unit of descriptors.
func descriptors(n int) int { return (n + fpga.FrameAlign - 1) / fpga.FrameAlign * fpga.FrameAlign }

// openCamera finds the camera block in one of the BARs and configures it.
func (s *session) openCamera() error {
	cfg, format := &s.owner.cfg, s.owner.format
	err := fmt.Errorf("%w: the device has no BAR", ErrHardware)
	for _, bar := range cfg.Card.BARs {
		if s.camera, err = fpga.OpenCameraBlock(bar.Registers, cfg.Number); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	cfg.Card.open.Add(1)
	s.owner.mu.Lock()
	exposure, gain := s.owner.exposure, s.owner.gain
	s.owner.mu.Unlock()
	want := fpga.CameraConfig{
		Width: cfg.Width, Height: cfg.Height, Format: fpga.FourCC(cfg.Pixel),
		Exposure: exposure, Gain: gain, Triggered: cfg.Triggered, Period: cfg.Rate.Period(),
	}
	if err := s.camera.Configure(want); err != nil {
		return err
	}
	if n, stride := s.camera.FrameBytes(), s.camera.Stride(); n != format.Size() || stride != format.Stride {
		return fmt.Errorf("%w: it sends %d bytes a frame in lines of %d, %s has %d in lines of %d",
			ErrHardware, n, stride, format, format.Size(), format.Stride)
	}
	return nil
}

// pinEnded is called when a pin has ended. If the pin was revoked, it informs the card and closes s.revoked.
func (s *session) pinEnded(why tegra.Reason) {
	if why == tegra.ReasonUnpin {
		return
	}
	s.once.Do(func() {
		s.owner.cfg.Card.revoked(s)
		s.why = why
		close(s.revoked)
	})
}

// lost reports whether memory of a slot was revoked. Data being written to that memory is then lost.
func (s *session) lost() bool {
	select {
	case <-s.revoked:
		return true
	default:
		return false
	}
}

// free gives a slot to the ring. If that fails, it sends the error to s.failed.
func (s *session) free(slot int) {
	if err := s.ring.Free(slot); err != nil {
		select {
		case s.failed <- err:
		default:
		}
	}
}

// run streams until something fails, or until ctx ends, in which case it returns nil, after a short wait for a frame
// that is still arriving. It leaves stopping the engine to the caller. The camera keeps capturing when only the engine
// has to be restarted, so that the FPGA's own count shows how many frames were lost.
func (s *session) run(ctx context.Context, emit func(*pipeline.Frame)) (err error) {
	defer func() { s.cut(err) }()
	c := s.owner
	if err := s.ring.Start(c.freeSlots()); err != nil {
		return err
	}
	c.freeSlots() // slots released in between
	s.resumed = c.cfg.Bare && !c.completed.IsZero()
	if s.camera != nil && !s.started.Load() {
		if err := s.camera.Start(); err != nil {
			return err
		}
		s.started.Store(true)
		c.cfg.Card.running.Add(1)
	}
	for ending := false; !ending || s.filling.frame != nil; {
		done, err := s.ring.Next(ctx)
		if ctx.Err() != nil && (err != nil || s.filling.frame == nil) {
			if ending || !s.mayEnd(ctx) {
				return nil
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), min(max(2*c.cfg.Rate.Period(), endLeast), endMost))
			defer cancel()
			ending = true
			continue
		}
		if err != nil {
			return err
		}
		if s.lost() {
			return fmt.Errorf("frame slot: %w", tegra.ErrRevoked)
		}
		take := s.emitFrame
		if !done.Done {
			take = s.part
		}
		if err := take(done, emit); err != nil {
			return err
		}
	}
	return nil
}

// freeSlots returns the slots that are not leased. Releasing each of them gives it to the ring, if the ring is running
// and does not have it yet.
func (c *FPGACamera) freeSlots() (free []int) {
	for i := range c.cfg.Slots {
		if f, err := c.pool.Lease(i); err == nil {
			free = append(free, i)
			f.Release()
		}
	}
	return free
}

// emitFrame checks a completed slot and emits its frame, or completes the frame that was emitted while it was filling.
// A frame whose pixels do not match the CRC is only counted. The completion was observed on this goroutine by a
// register read (xdma.Ring). Consumers get the frame through a lock, which is the synchronising operation that
// GPUDirect RDMA 12.9 §11.7 requires between the observation and a kernel launch (TestKernelIsLaunchedAfterCompletion).
func (s *session) emitFrame(done xdma.Completion, emit func(*pipeline.Frame)) error {
	c := s.owner
	if c.cfg.Bare {
		return s.takeBare(done, emit)
	}
	now := time.Now()
	trailer, err := fpga.ParseTrailer(done.Trailer)
	if err != nil {
		return fmt.Errorf("slot %d: %w: %w", done.Slot, xdma.ErrStream, err)
	}
	if !c.fits(trailer) || trailer.Sequence < s.next {
		return fmt.Errorf("%w: frame %d is %dx%d %v in lines of %d bytes; %s with a number from %d on was expected",
			xdma.ErrStream, trailer.Sequence, trailer.Width, trailer.Height, trailer.Format, trailer.Stride, c.format, s.next)
	}
	s.mapTime(trailer.Start)
	if s.filling.frame != nil {
		s.complete(trailer, now)
		return nil
	}
	f, err := c.pool.Lease(done.Slot)
	if err != nil {
		return err
	}
	s.next = trailer.Sequence + 1
	if crc.Castagnoli(0, f.Bytes) != trailer.PixelCRC {
		// The graph notices the gap in the sequence.
		c.refused.Add(1)
		c.cfg.Logger.Error("frame refused: its pixels do not match the FPGA's CRC",
			"source", c.cfg.Name, "frame", s.base+trailer.Sequence, "slot", done.Slot)
		f.Release()
		return nil
	}
	f.Sequence = s.base + trailer.Sequence
	s.stamp(f, trailer.Start)
	c.describe(f, trailer, now)
	c.deliver(f, emit)
	return nil
}

// mapTime updates the map of the timestamp counter, before an exposure is mapped that began when it read start.
func (s *session) mapTime(start uint64) {
	c := s.owner
	if c.cfg.Card.mapTime(s.camera.Timestamp, start < s.exposed) {
		c.cfg.Logger.Warn("clock step: the FPGA's time was mapped again", "source", c.cfg.Name)
	}
	s.exposed = start
}

// stamp sets the times of a frame that are known from the start of its exposure.
func (s *session) stamp(f *pipeline.Frame, start uint64) {
	card := s.owner.cfg.Card
	f.Times.ExposureStart, f.Times.Uncertainty = card.clock.At(start)
	f.Times.Reference, f.Times.Clock = card.clock.Reference(start), card.Report(time.Now())
}

// describe sets the fields of a frame that are known only from its trailer.
func (c *FPGACamera) describe(f *pipeline.Frame, t fpga.Trailer, now time.Time) {
	f.Times.ExposureEnd, _ = c.cfg.Card.clock.At(t.End)
	f.Times.Captured, f.CRC = now, t.PixelCRC
	if t.Flags&fpga.FlagPadded != 0 {
		f.Flags |= pipeline.FlagPadded
	}
}

func (c *FPGACamera) deliver(f *pipeline.Frame, emit func(*pipeline.Frame)) {
	c.countFrame(f)
	emit(f)
}

// countFrame counts a complete frame and calls OnFrame.
func (c *FPGACamera) countFrame(f *pipeline.Frame) {
	c.states.last.Store(f.Sequence)
	c.frames.Add(1)
	if c.cfg.OnFrame != nil {
		c.cfg.OnFrame(f)
	}
}

// fits reports whether the trailer matches the configured format.
func (c *FPGACamera) fits(t fpga.Trailer) bool {
	f := c.format
	return t.Format == fpga.FourCC(f.Pixel) && t.Width == uint32(f.Width) && t.Height == uint32(f.Height) && t.Stride == uint32(f.Stride)
}

// channel returns the DMA channel of the camera's frames.
func (s *session) channel() int {
	if s.camera != nil {
		return s.camera.Info().Channel
	}
	return s.owner.cfg.Channel
}

// close stops the camera and releases everything. It unpins the slots even if the engine does not stop: then the
// unmapping keeps the engine from the memory, and a fence keeps others from reusing its addresses (Card.abandon). next
// is the number of the first frame of the next session.
func (s *session) close() (next uint64, err error) {
	var errs []error
	if s.camera != nil {
		s.owner.cfg.Card.open.Add(-1)
	}
	if s.camera != nil && s.started.Load() {
		s.owner.cfg.Card.running.Add(-1)
		errs = append(errs, s.camera.Stop())
		if n, err := s.camera.Counters(); err == nil {
			s.next = max(s.next, n.Sequence)
		}
		s.next = max(s.next, s.taken) // needed if the device was reset
	}
	if s.ring != nil {
		stopped := s.ring.Stop()
		release := s.ring.Close
		if errors.Is(stopped, xdma.ErrBusy) {
			release = s.ring.Abandon
			errs = append(errs, s.owner.cfg.Card.abandon(fpga.C2H, s.channel()))
		}
		errs = append(errs, stopped, release())
	}
	for _, p := range s.pins {
		errs = append(errs, except(p.Unpin(), tegra.ErrRevoked))
	}
	s.owner.cfg.Card.stopped(s)
	return s.base + s.next, errors.Join(errs...)
}
